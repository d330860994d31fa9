// cuBLASLt, opened at run time: the kernel to beat, and the float32 reference.
#pragma once
#include <string>
#include <vector>

#include "kernels.h"

namespace cr {

// D = A * B, as cuBLASLt answers it. Matrices are packed and row-major or column-major.
class Cublas {
 public:
  void open(std::vector<std::string> const& directories);
  uint64_t version() const;
  // Describes the product and takes the heuristic's first answer. `d` is of the operands' type, or float32 and row-major
  // if `float_result`. Throws if cuBLASLt has no answer.
  void plan(Matrix const& a, Matrix const& b, Strides d, Element element, bool float_result, size_t workspace_bytes);
  void run(void const* a, void const* b, void* d, void* workspace, cudaStream_t stream);

 private:
  void release();
  void* handle_ = nullptr;
  void* operation_ = nullptr;
  void* layouts_[3] = {nullptr, nullptr, nullptr};
  uint64_t algorithm_[8] = {};
  uint64_t workspace_ = 0;
  bool exchanged_ = false;  // D is row-major: cuBLASLt computes its transpose from the exchanged operands
};

}  // namespace cr
