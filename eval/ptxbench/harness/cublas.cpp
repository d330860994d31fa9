#include "cublas.h"

#include <algorithm>
#include <utility>

#include "cublaslt.h"

namespace {

cr::CublasLt lt;

bool row_major(cr::Strides const& strides) { return strides.column == 1; }

}  // namespace

namespace cr {

void Cublas::open(std::vector<std::string> const& directories) {
  lt.open(directories);
  blas_check(lt.create(&handle_), "create handle");
}

uint64_t Cublas::version() const { return handle_ != nullptr ? lt.get_version() : 0; }

void Cublas::release() { lt.release(operation_, layouts_); }

void Cublas::plan(Matrix const& a, Matrix const& b, Strides d, Element element, bool float_result,
                  size_t workspace_bytes) {
  release();
  // cuBLASLt is column-major. A row-major D (m x n) is a column-major D^T = B^T A^T: operands change places and flip.
  exchanged_ = row_major(d);
  int64_t const k = a.columns;
  int64_t const m = exchanged_ ? b.columns : a.rows, n = exchanged_ ? a.rows : b.columns;
  bool const first_transposed = exchanged_ ? !row_major(b.strides) : row_major(a.strides);
  bool const second_transposed = exchanged_ ? !row_major(a.strides) : row_major(b.strides);
  int32_t const first = first_transposed ? kBlasOperationT : kBlasOperationN;
  int32_t const second = second_transposed ? kBlasOperationT : kBlasOperationN;
  blas_check(lt.desc_create(&operation_, kBlasCompute32F, CUDA_R_32F), "create operation");
  blas_check(lt.desc_set(operation_, kBlasDescTransA, &first, sizeof(first)), "set transposition of A");
  blas_check(lt.desc_set(operation_, kBlasDescTransB, &second, sizeof(second)), "set transposition of B");
  int const type = element == Element::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
  int64_t const first_rows = first_transposed ? k : m, second_rows = second_transposed ? n : k;
  blas_check(lt.layout_create(&layouts_[0], type, first_rows, m + k - first_rows, first_rows), "layout of A");
  blas_check(lt.layout_create(&layouts_[1], type, second_rows, n + k - second_rows, second_rows), "layout of B");
  blas_check(lt.layout_create(&layouts_[2], float_result ? CUDA_R_32F : type, m, n, m), "layout of D");

  BlasHeuristicResult result{};
  int returned = 0;
  blas_check(lt.heuristic(handle_, operation_, layouts_, workspace_bytes, 1, &result, &returned), "ask the heuristic");
  if (returned < 1 || result.state != 0) throw Failure(Code::kFailed, "cuBLASLt has no answer for this product");
  std::copy(result.algo, result.algo + 8, algorithm_);
  workspace_ = result.workspace;
}

void Cublas::run(void const* a, void const* b, void* d, void* workspace, cudaStream_t stream) {
  float const alpha = 1.0f, beta = 0.0f;
  void const* first = exchanged_ ? b : a;
  void const* second = exchanged_ ? a : b;
  blas_check(lt.matmul(handle_, operation_, &alpha, first, layouts_[0], second, layouts_[1], &beta, d, layouts_[2], d,
                     layouts_[2], algorithm_, workspace, workspace_, stream),
           "multiply");
}

}  // namespace cr
