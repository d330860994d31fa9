// The few parts of cuBLASLt that the runner needs, opened at run time: float32 reference and baseline.
#pragma once
#include <string>
#include <vector>

#include "support.h"

namespace cr {

// A GEMM for cuBLASLt, D = A * B with packed operands; letters as in the project: 'T' row-major, 'N' column-major.
struct BlasGemm {
  int m, n, k;
  char a_layout, b_layout, d_layout;
};

struct BlasAlgorithm {
  uint64_t algo[8];  // cublasLtMatmulAlgo_t
  uint64_t workspace;
  std::string description;
};

class Blas {
 public:
  // Opens the library and creates the handle; needs the CUDA context.
  void open(std::vector<std::string> const& directories);
  bool ready() const { return handle_ != nullptr; }
  uint64_t version() const;

  // Describes the problem for bfloat16 operands and a bfloat16 or float32 result. Replaces the previous description.
  void describe(BlasGemm const& gemm, bool float_result);
  // The heuristic's answers for the described problem, best first; may be empty.
  std::vector<BlasAlgorithm> heuristics(int most, uint64_t workspace_bytes);
  // Enqueues the described product. Returns false if cuBLASLt refuses.
  bool run(BlasAlgorithm const& algorithm, void const* a, void const* b, void* d, void* workspace, cudaStream_t stream);

 private:
  void release();
  void* handle_ = nullptr;
  void* operation_ = nullptr;
  void* layouts_[3] = {nullptr, nullptr, nullptr};  // first operand, second operand, result (all column-major)
  bool transposed_ = false;                         // D is row-major: cuBLASLt computes its transpose
};

}  // namespace cr
