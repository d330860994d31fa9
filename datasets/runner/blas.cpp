#include "blas.h"

#include <algorithm>
#include <sstream>

#include "cublaslt.h"

namespace {

struct ConfigField {
  int attribute;  // CUBLASLT_ALGO_CONFIG_*
  char const* name;
  size_t bytes;
};
constexpr ConfigField kConfigFields[] = {{0, "algo", 4},    {1, "tile", 4},    {6, "stages", 4}, {2, "splitk", 4},
                                         {3, "reduction", 4}, {4, "swizzle", 4}, {8, "cluster", 2}};

cr::CublasLt lt;

}  // namespace

namespace cr {

void Blas::open(std::vector<std::string> const& directories) {
  lt.open(directories);
  blas_check(lt.create(&handle_), "create handle");
}

uint64_t Blas::version() const { return ready() ? lt.get_version() : 0; }

void Blas::release() { lt.release(operation_, layouts_); }

void Blas::describe(BlasGemm const& gemm, bool float_result) {
  release();
  // A row-major D (m x n) is a column-major D^T (n x m) = B^T A^T; a transposed operand flips its letter.
  transposed_ = gemm.d_layout == 'T';
  auto const flip = [](char letter) { return letter == 'T' ? 'N' : 'T'; };
  int64_t const m = transposed_ ? gemm.n : gemm.m, n = transposed_ ? gemm.m : gemm.n, k = gemm.k;
  char const first = transposed_ ? flip(gemm.b_layout) : gemm.a_layout;
  char const second = transposed_ ? flip(gemm.a_layout) : gemm.b_layout;
  int32_t const first_op = first == 'N' ? kBlasOperationN : kBlasOperationT;
  int32_t const second_op = second == 'N' ? kBlasOperationN : kBlasOperationT;
  blas_check(lt.desc_create(&operation_, kBlasCompute32F, CUDA_R_32F), "create operation");
  blas_check(lt.desc_set(operation_, kBlasDescTransA, &first_op, sizeof(first_op)), "set transposition of A");
  blas_check(lt.desc_set(operation_, kBlasDescTransB, &second_op, sizeof(second_op)), "set transposition of B");
  // Rows, columns and leading dimension as stored, column-major: a row-major X (r x c) is stored as c x r.
  int64_t const first_rows = first == 'N' ? m : k, first_columns = first == 'N' ? k : m;
  int64_t const second_rows = second == 'N' ? k : n, second_columns = second == 'N' ? n : k;
  blas_check(lt.layout_create(&layouts_[0], CUDA_R_16BF, first_rows, first_columns, first_rows), "layout of A");
  blas_check(lt.layout_create(&layouts_[1], CUDA_R_16BF, second_rows, second_columns, second_rows), "layout of B");
  blas_check(lt.layout_create(&layouts_[2], float_result ? CUDA_R_32F : CUDA_R_16BF, m, n, m), "layout of D");
}

std::vector<BlasAlgorithm> Blas::heuristics(int most, uint64_t workspace_bytes) {
  std::vector<BlasHeuristicResult> results(most);
  int returned = 0;
  BlasStatus const status =
      lt.heuristic(handle_, operation_, layouts_, workspace_bytes, most, results.data(), &returned);
  std::vector<BlasAlgorithm> algorithms;
  if (status != 0) return algorithms;  // no answer for this problem
  for (int i = 0; i < returned; ++i) {
    if (results[i].state != 0) continue;
    BlasAlgorithm algorithm;
    std::copy(results[i].algo, results[i].algo + 8, algorithm.algo);
    algorithm.workspace = results[i].workspace;
    std::ostringstream text;
    for (ConfigField const& field : kConfigFields) {
      uint32_t value = 0;
      size_t written = 0;
      if (lt.config_get(algorithm.algo, field.attribute, &value, field.bytes, &written) != 0) continue;
      text << field.name << '=' << value << ' ';
    }
    text << "workspace=" << algorithm.workspace;
    algorithm.description = text.str();
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

bool Blas::run(BlasAlgorithm const& algorithm, void const* a, void const* b, void* d, void* workspace,
               cudaStream_t stream) {
  float const alpha = 1.0f, beta = 0.0f;
  void const* first = transposed_ ? b : a;
  void const* second = transposed_ ? a : b;
  return lt.matmul(handle_, operation_, &alpha, first, layouts_[0], second, layouts_[1], &beta, d, layouts_[2], d,
                   layouts_[2], algorithm.algo, workspace, algorithm.workspace, stream) == 0;
}

}  // namespace cr
