// Writes the text of kernels.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/program.h"

namespace attn::codegen {

// The C++ type of an element in memory; 16-bit floats are held as bits.
std::string_view element_type(DType dtype);

// The class of attn/values.cuh for f16, bf16, e4m3 or e5m2.
std::string_view float_class(DType dtype);

// C++ text: the element of `dtype` with the value of an expression of type float or double.
std::string element_text(DType dtype, const std::string& value);

// C++ text: the value, a double, of an element of floats of 16, 32 or 64 bits.
std::string real_text(DType dtype, const std::string& element);

// One kernel, whose body has the thread's number in `i`. It needs the include line of values.cuh.
std::string kernel_text(const char* name, const std::vector<std::string>& parameters,
                        const std::string& body);

// A field of a class of attn/, and text for its value.
struct Field {
  Field(const char* name_, std::int64_t value_) : name(name_), value(std::to_string(value_)) {}
  Field(const char* name_, std::string value_) : name(name_), value(std::move(value_)) {}

  const char* name;
  std::string value;  // empty: the default
};

// Statements of a kernel that declare `name`, an object of the class, and set its fields.
std::string object_text(const std::string& type, const std::string& name,
                        const std::vector<Field>& fields);

// Builds a derive step and its kernel.
class KernelText {
 public:
  // Adds a tensor that the kernel reads; returns its name in the text, which is `name` if given.
  std::string read(const std::string& tensor, DType dtype, std::string name = "");
  std::string read(const plan::TensorOperand& tensor, DType dtype, std::string name = "");

  // Adds an input with its parameter.
  void read(plan::OperandSource source, std::string parameter);

  // Adds a tensor that the kernel writes; returns its name in the text. `meaning` is for listings.
  std::string write(const std::string& tensor, DType dtype, std::string meaning,
                    std::string name = "");

  // Adds a tensor that the kernel fills: `statements` run for each `i` below `count`; `out` is the
  // tensor. All lines but the first are indented by 4 columns.
  void make(const std::string& tensor, DType dtype, std::int64_t count, std::string meaning,
            const std::string& statements);

  // Adds statements for thread `i` after those so far, and before those of make().
  void add(const std::string& statements) { body_ += statements; }

  // Includes a file of attn/ besides values.cuh.
  void include(std::string_view file) { files_.emplace(file); }

  // Adds an object of a class of attn/FILE, called `kernel`, and a call of its run(i).
  void run(std::string_view file, const std::string& type, const std::vector<Field>& fields,
           const std::string& further_arguments = "");

  bool empty() const { return step_.outputs.empty(); }
  plan::DeriveStep finish(bool once) &&;

 private:
  // Statements for each thread below `count`.
  struct Part {
    std::int64_t count = 0;
    std::string output, statements;
  };
  std::string parts_text() const;

  plan::DeriveStep step_;
  std::vector<Part> parts_;
  std::map<std::string, std::string> names_;   // of inputs
  std::vector<std::string> outputs_, inputs_;  // parameters
  std::set<std::string, std::less<>> files_;
  std::string body_;
};

}  // namespace attn::codegen
