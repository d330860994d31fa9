#include "cublas.h"

#include <library_types.h>

#include <algorithm>
#include <utility>

#include "library.h"

// Declarations of cuBLASLt's C interface (stable since CUDA 10.1); its header comes with no CUDA toolkit component
// that building the checker otherwise needs.
namespace {

using Status = int;  // cublasStatus_t; 0 is success
struct HeuristicResult {
  uint64_t algorithm[8];
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96, "layout of cublasLtMatmulHeuristicResult_t");

constexpr int kCompute32F = 68;                  // CUBLAS_COMPUTE_32F
constexpr int kDescTransA = 3, kDescTransB = 4;  // CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
constexpr int kPreferenceWorkspace = 1;          // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES

struct Functions {
  Status (*create)(void** handle);
  size_t (*get_version)();
  Status (*desc_create)(void** desc, int compute_type, int scale_type);
  Status (*desc_destroy)(void* desc);
  Status (*desc_set)(void* desc, int attribute, void const* value, size_t bytes);
  Status (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  Status (*layout_destroy)(void* layout);
  Status (*preference_create)(void** preference);
  Status (*preference_destroy)(void* preference);
  Status (*preference_set)(void* preference, int attribute, void const* value, size_t bytes);
  Status (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int requested,
                      HeuristicResult* results, int* returned);
  Status (*matmul)(void* handle, void* desc, void const* alpha, void const* a, void* a_layout, void const* b,
                   void* b_layout, void const* beta, void const* c, void* c_layout, void* d, void* d_layout,
                   void const* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream);
};
Functions lt;

void lt_check(Status status, char const* what) {
  if (status == 0) return;
  throw cr::Failure(cr::Code::kFailed, std::string("cuBLASLt, ") + what + ": status " + std::to_string(status));
}

bool row_major(cr::Strides const& strides) { return strides.column == 1; }

}  // namespace

namespace cr {

void Cublas::open(std::vector<std::string> const& directories) {
  void* library = open_library(directories, {"libcublasLt.so.13", "libcublasLt.so"});
  find_symbol(library, "cublasLtCreate", lt.create);
  find_symbol(library, "cublasLtGetVersion", lt.get_version);
  find_symbol(library, "cublasLtMatmulDescCreate", lt.desc_create);
  find_symbol(library, "cublasLtMatmulDescDestroy", lt.desc_destroy);
  find_symbol(library, "cublasLtMatmulDescSetAttribute", lt.desc_set);
  find_symbol(library, "cublasLtMatrixLayoutCreate", lt.layout_create);
  find_symbol(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy);
  find_symbol(library, "cublasLtMatmulPreferenceCreate", lt.preference_create);
  find_symbol(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy);
  find_symbol(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set);
  find_symbol(library, "cublasLtMatmulAlgoGetHeuristic", lt.heuristic);
  find_symbol(library, "cublasLtMatmul", lt.matmul);
  lt_check(lt.create(&handle_), "create handle");
}

uint64_t Cublas::version() const { return handle_ != nullptr ? lt.get_version() : 0; }

void Cublas::release() {
  if (operation_ != nullptr) (void)lt.desc_destroy(operation_);
  operation_ = nullptr;
  for (void*& layout : layouts_) {
    if (layout != nullptr) (void)lt.layout_destroy(layout);
    layout = nullptr;
  }
}

void Cublas::plan(Matrix const& a, Matrix const& b, Strides d, Element element, bool float_result,
                  size_t workspace_bytes) {
  release();
  // cuBLASLt is column-major. A row-major D (m x n) is a column-major D^T = B^T A^T: operands change places and flip.
  exchanged_ = row_major(d);
  int64_t const k = a.columns;
  int64_t const m = exchanged_ ? b.columns : a.rows, n = exchanged_ ? a.rows : b.columns;
  bool const first_transposed = exchanged_ ? !row_major(b.strides) : row_major(a.strides);
  bool const second_transposed = exchanged_ ? !row_major(a.strides) : row_major(b.strides);
  int32_t const first = first_transposed ? 1 : 0, second = second_transposed ? 1 : 0;  // CUBLAS_OP_T, CUBLAS_OP_N
  lt_check(lt.desc_create(&operation_, kCompute32F, CUDA_R_32F), "create operation");
  lt_check(lt.desc_set(operation_, kDescTransA, &first, sizeof(first)), "set transposition of A");
  lt_check(lt.desc_set(operation_, kDescTransB, &second, sizeof(second)), "set transposition of B");
  int const type = element == Element::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
  int64_t const first_rows = first_transposed ? k : m, second_rows = second_transposed ? n : k;
  lt_check(lt.layout_create(&layouts_[0], type, first_rows, m + k - first_rows, first_rows), "layout of A");
  lt_check(lt.layout_create(&layouts_[1], type, second_rows, n + k - second_rows, second_rows), "layout of B");
  lt_check(lt.layout_create(&layouts_[2], float_result ? CUDA_R_32F : type, m, n, m), "layout of D");

  void* preference = nullptr;
  lt_check(lt.preference_create(&preference), "create preference");
  HeuristicResult result{};
  int returned = 0;
  Status status = lt.preference_set(preference, kPreferenceWorkspace, &workspace_bytes, sizeof(workspace_bytes));
  if (status == 0) {
    status = lt.heuristic(handle_, operation_, layouts_[0], layouts_[1], layouts_[2], layouts_[2], preference, 1,
                          &result, &returned);
  }
  (void)lt.preference_destroy(preference);
  lt_check(status, "ask the heuristic");
  if (returned < 1 || result.state != 0) throw Failure(Code::kFailed, "cuBLASLt has no answer for this product");
  std::copy(result.algorithm, result.algorithm + 8, algorithm_);
  workspace_ = result.workspace;
}

void Cublas::run(void const* a, void const* b, void* d, void* workspace, cudaStream_t stream) {
  float const alpha = 1.0f, beta = 0.0f;
  void const* first = exchanged_ ? b : a;
  void const* second = exchanged_ ? a : b;
  lt_check(lt.matmul(handle_, operation_, &alpha, first, layouts_[0], second, layouts_[1], &beta, d, layouts_[2], d,
                     layouts_[2], algorithm_, workspace, workspace_, stream),
           "multiply");
}

}  // namespace cr
