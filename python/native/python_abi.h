// The functions of Python's stable ABI that a call needs; the process that loads the library has
// them. Objects are void*. https://docs.python.org/3/c-api/stable.html
#pragma once

#include <cstddef>
#include <memory>

extern "C" {
void PyErr_Clear();
void* PyErr_Occurred();  // borrowed
void* PyErr_NoMemory();  // sets the error; null
int PyErr_BadArgument();
void* PyLong_FromLong(long value);
long long PyLong_AsLongLong(void* object);
void* PyLong_AsVoidPtr(void* object);
double PyFloat_AsDouble(void* object);
void* PyTuple_New(std::ptrdiff_t size);
std::ptrdiff_t PyTuple_Size(void* tuple);
void* PyTuple_GetItem(void* tuple, std::ptrdiff_t place);              // borrowed
int PyTuple_SetItem(void* tuple, std::ptrdiff_t place, void* object);  // takes the reference
void* PyObject_Type(void* object);                                     // a new reference
void Py_IncRef(void* object);
void Py_DecRef(void* object);
int PyObject_RichCompareBool(void* object, void* other, int operation);
void* PyCapsule_New(void* pointer, const char* name, void (*destructor)(void* capsule));
void* PyCapsule_GetPointer(void* capsule, const char* name);
void* PyCFunction_NewEx(void* method, void* self, void* module);  // keeps self
void* PyObject_CallFunctionObjArgs(void* callable, ...);          // up to a null
void* Py_BuildValue(const char* format, ...);
}

namespace attn::python {

// Owns one reference to an object.
struct ReleaseReference {
  void operator()(void* object) const { Py_DecRef(object); }
};
using Reference = std::unique_ptr<void, ReleaseReference>;

inline Reference new_reference(void* object) {
  Py_IncRef(object);
  return Reference(object);
}

// A new reference to None.
inline void* none() { return Py_BuildValue(""); }

// As Python's PyMethodDef.
struct Method {
  const char* name;
  void* (*function)(void* self, void* const* arguments, std::ptrdiff_t count);
  int flags;
  const char* doc;
};
constexpr int kFastCall = 0x80;  // METH_FASTCALL

}  // namespace attn::python
