#include "blas.h"

#include <library_types.h>

#include <algorithm>
#include <sstream>

#include "library.h"

// Declarations of cuBLASLt's C interface (stable since CUDA 10.1); its header comes with no CUDA toolkit component
// that building the engine otherwise needs.
namespace {

using Status = int;  // cublasStatus_t; 0 is success
struct HeuristicResult {
  uint64_t algo[8];
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96, "layout of cublasLtMatmulHeuristicResult_t");

constexpr int kCompute32F = 68;                 // CUBLAS_COMPUTE_32F
constexpr int kDescTransA = 3, kDescTransB = 4;  // CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
constexpr int kPreferenceWorkspace = 1;         // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int32_t kOperationN = 0, kOperationT = 1;
struct ConfigField {
  int attribute;  // CUBLASLT_ALGO_CONFIG_*
  char const* name;
  size_t bytes;
};
constexpr ConfigField kConfigFields[] = {{0, "algo", 4},    {1, "tile", 4},    {6, "stages", 4}, {2, "splitk", 4},
                                         {3, "reduction", 4}, {4, "swizzle", 4}, {8, "cluster", 2}};

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
                   void const* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream);
  Status (*config_get)(void const* algo, int attribute, void* value, size_t bytes, size_t* written);
};
Functions lt;

void lt_check(Status status, char const* what) {
  if (status != 0) {
    throw cr::Failure(cr::Code::kFailed, std::string("cuBLASLt, ") + what + ": status " + std::to_string(status));
  }
}

}  // namespace

namespace cr {

void Blas::open(std::vector<std::string> const& directories) {
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
  find_symbol(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.config_get);
  lt_check(lt.create(&handle_), "create handle");
}

uint64_t Blas::version() const { return ready() ? lt.get_version() : 0; }

void Blas::release() {
  if (operation_ != nullptr) (void)lt.desc_destroy(operation_);
  operation_ = nullptr;
  for (void*& layout : layouts_) {
    if (layout != nullptr) (void)lt.layout_destroy(layout);
    layout = nullptr;
  }
}

void Blas::describe(BlasGemm const& gemm, bool float_result) {
  release();
  // A row-major D (m x n) is a column-major D^T (n x m) = B^T A^T; a transposed operand flips its letter.
  transposed_ = gemm.d_layout == 'T';
  auto const flip = [](char letter) { return letter == 'T' ? 'N' : 'T'; };
  int64_t const m = transposed_ ? gemm.n : gemm.m, n = transposed_ ? gemm.m : gemm.n, k = gemm.k;
  char const first = transposed_ ? flip(gemm.b_layout) : gemm.a_layout;
  char const second = transposed_ ? flip(gemm.a_layout) : gemm.b_layout;
  int32_t const first_op = first == 'N' ? kOperationN : kOperationT;
  int32_t const second_op = second == 'N' ? kOperationN : kOperationT;
  lt_check(lt.desc_create(&operation_, kCompute32F, CUDA_R_32F), "create operation");
  lt_check(lt.desc_set(operation_, kDescTransA, &first_op, sizeof(first_op)), "set transposition of A");
  lt_check(lt.desc_set(operation_, kDescTransB, &second_op, sizeof(second_op)), "set transposition of B");
  // Rows, columns and leading dimension as stored, column-major: a row-major X (r x c) is stored as c x r.
  int64_t const first_rows = first == 'N' ? m : k, first_columns = first == 'N' ? k : m;
  int64_t const second_rows = second == 'N' ? k : n, second_columns = second == 'N' ? n : k;
  lt_check(lt.layout_create(&layouts_[0], CUDA_R_16BF, first_rows, first_columns, first_rows), "layout of A");
  lt_check(lt.layout_create(&layouts_[1], CUDA_R_16BF, second_rows, second_columns, second_rows), "layout of B");
  lt_check(lt.layout_create(&layouts_[2], float_result ? CUDA_R_32F : CUDA_R_16BF, m, n, m), "layout of D");
}

std::vector<BlasAlgorithm> Blas::heuristics(int most, uint64_t workspace_bytes) {
  void* preference = nullptr;
  lt_check(lt.preference_create(&preference), "create preference");
  std::vector<HeuristicResult> results(most);
  int returned = 0;
  Status status = lt.preference_set(preference, kPreferenceWorkspace, &workspace_bytes, sizeof(workspace_bytes));
  if (status == 0) {
    status = lt.heuristic(handle_, operation_, layouts_[0], layouts_[1], layouts_[2], layouts_[2], preference, most,
                          results.data(), &returned);
  }
  (void)lt.preference_destroy(preference);
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
