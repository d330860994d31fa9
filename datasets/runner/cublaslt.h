// cuBLASLt's C interface (stable since CUDA 10.1), opened at run time: its header comes with no CUDA toolkit component
// that the programs here otherwise need.
#pragma once
#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "library.h"

namespace cr {

using BlasStatus = int;  // cublasStatus_t; 0 is success

struct BlasHeuristicResult {
  uint64_t algo[8];
  size_t workspace;
  BlasStatus state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(BlasHeuristicResult) == 96, "layout of cublasLtMatmulHeuristicResult_t");

constexpr int kBlasCompute32F = 68;                      // CUBLAS_COMPUTE_32F
constexpr int kBlasDescTransA = 3, kBlasDescTransB = 4;  // CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
constexpr int kBlasPreferenceWorkspace = 1;              // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int32_t kBlasOperationN = 0, kBlasOperationT = 1;

inline void blas_check(BlasStatus status, char const* what) {
  if (status == 0) return;
  throw Failure(Code::kFailed, std::string("cuBLASLt, ") + what + ": status " + std::to_string(status));
}

struct CublasLt {
  BlasStatus (*create)(void** handle);
  size_t (*get_version)();
  BlasStatus (*desc_create)(void** desc, int compute_type, int scale_type);
  BlasStatus (*desc_destroy)(void* desc);
  BlasStatus (*desc_set)(void* desc, int attribute, void const* value, size_t bytes);
  BlasStatus (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  BlasStatus (*layout_destroy)(void* layout);
  BlasStatus (*preference_create)(void** preference);
  BlasStatus (*preference_destroy)(void* preference);
  BlasStatus (*preference_set)(void* preference, int attribute, void const* value, size_t bytes);
  BlasStatus (*algo_heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference,
                               int requested, BlasHeuristicResult* results, int* returned);
  BlasStatus (*matmul)(void* handle, void* desc, void const* alpha, void const* a, void* a_layout, void const* b,
                       void* b_layout, void const* beta, void const* c, void* c_layout, void* d, void* d_layout,
                       void const* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream);
  BlasStatus (*config_get)(void const* algo, int attribute, void* value, size_t bytes, size_t* written);

  // Opens the library, from the directories first; throws if it is not there.
  void open(std::vector<std::string> const& directories) {
    void* library = open_library(directories, {"libcublasLt.so.13", "libcublasLt.so"});
    find_symbol(library, "cublasLtCreate", create);
    find_symbol(library, "cublasLtGetVersion", get_version);
    find_symbol(library, "cublasLtMatmulDescCreate", desc_create);
    find_symbol(library, "cublasLtMatmulDescDestroy", desc_destroy);
    find_symbol(library, "cublasLtMatmulDescSetAttribute", desc_set);
    find_symbol(library, "cublasLtMatrixLayoutCreate", layout_create);
    find_symbol(library, "cublasLtMatrixLayoutDestroy", layout_destroy);
    find_symbol(library, "cublasLtMatmulPreferenceCreate", preference_create);
    find_symbol(library, "cublasLtMatmulPreferenceDestroy", preference_destroy);
    find_symbol(library, "cublasLtMatmulPreferenceSetAttribute", preference_set);
    find_symbol(library, "cublasLtMatmulAlgoGetHeuristic", algo_heuristic);
    find_symbol(library, "cublasLtMatmul", matmul);
    find_symbol(library, "cublasLtMatmulAlgoConfigGetAttribute", config_get);
  }

  // Asks for at most `most` answers within a workspace; returns how many there are in `results`.
  BlasStatus heuristic(void* handle, void* operation, void* const layouts[3], uint64_t workspace_bytes, int most,
                       BlasHeuristicResult* results, int* returned) const {
    void* preference = nullptr;
    blas_check(preference_create(&preference), "create preference");
    BlasStatus status = preference_set(preference, kBlasPreferenceWorkspace, &workspace_bytes, sizeof(workspace_bytes));
    if (status == 0) {
      status = algo_heuristic(handle, operation, layouts[0], layouts[1], layouts[2], layouts[2], preference, most,
                              results, returned);
    }
    (void)preference_destroy(preference);
    return status;
  }

  // Releases what describes a product: an operation and the layouts of A, B and D.
  void release(void*& operation, void* (&layouts)[3]) const {
    if (operation != nullptr) (void)desc_destroy(operation);
    operation = nullptr;
    for (void*& layout : layouts) {
      if (layout != nullptr) (void)layout_destroy(layout);
      layout = nullptr;
    }
  }
};

}  // namespace cr
