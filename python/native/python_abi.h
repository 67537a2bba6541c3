// The functions of Python's stable ABI that a call needs; the process that loads the library has
// them. Objects are void*. https://docs.python.org/3/c-api/stable.html
#pragma once

#include <cstddef>

extern "C" {
void PyErr_Clear();
void* PyLong_FromLong(long value);
double PyFloat_AsDouble(void* object);
void* PyTuple_New(std::ptrdiff_t size);
std::ptrdiff_t PyTuple_Size(void* tuple);
void* PyTuple_GetItem(void* tuple, std::ptrdiff_t place);              // borrowed
int PyTuple_SetItem(void* tuple, std::ptrdiff_t place, void* object);  // takes the reference
void* PyObject_Type(void* object);                                     // a new reference
void Py_DecRef(void* object);
}
