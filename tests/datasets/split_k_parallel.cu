// Runs parallel split-K with one kernel and with two (and CUTLASS's own between), and split-K over slices of K, on one
// workspace that is never cleared, and checks every result.
// Prints what is wrong and ends with status 1; with 0 and a summary if all is right.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "unit.h"

namespace {

using Bf16 = cutlass::bfloat16_t;
using Auto = cutlass::epilogue::collective::EpilogueTileAuto;
using sm90::Col;
using sm90::Cooperative;
using sm90::Gemm;
using sm90::Pingpong;
using sm90::Row;
using sm90::SplitK;
using sm90::StreamK;
using sm90::Warpspecialized;

struct Small : Gemm<Bf16, Bf16, Row, Col, Row, 128, 32, 64, 1, 1, 6, Cooperative, sm90::EpiNoSmem, Auto, StreamK>::Kernel {};
struct Cluster : Gemm<Bf16, Bf16, Row, Col, Row, 128, 128, 64, 2, 1, 4, Cooperative, sm90::EpiTmaCooperative, Auto, StreamK>::Kernel {};
struct ColumnMajor : Gemm<Bf16, Bf16, Row, Col, Col, 256, 48, 64, 1, 2, 5, Cooperative, sm90::EpiNoSmem, Auto, StreamK>::Kernel {};
struct Large : Gemm<Bf16, void, Row, Col, Row, 128, 256, 64, 1, 1, 3, Cooperative, sm90::EpiNoSmem, Auto, StreamK>::Kernel {};
struct Slices : Gemm<Bf16, void, Row, Col, Row, 64, 32, 128, 1, 1, 5, Warpspecialized, sm90::EpiNoSmem, Auto, SplitK>::Kernel {};
struct TmaSlices : Gemm<Bf16, void, Row, Col, Row, 64, 96, 64, 1, 2, 4, Pingpong, sm90::EpiTma, Auto, SplitK>::Kernel {};
struct ColumnMajorSlices
    : Gemm<Bf16, void, Row, Col, Col, 64, 16, 64, 2, 1, 4, Warpspecialized, sm90::EpiTma, Auto, SplitK>::Kernel {};

#define CHECK(call)                                                                        \
  do {                                                                                     \
    cudaError_t const error = (call);                                                      \
    if (error != cudaSuccess) {                                                            \
      std::printf("%s, line %d: %s\n", #call, __LINE__, cudaGetErrorString(error));        \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

// Whole numbers from -2 to 2, whose sums are exact in float32 whatever the order, or uniform values in [-1, 1).
__global__ void fill(Bf16* data, size_t count, uint64_t seed, bool whole) {
  size_t const i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  data[i] = Bf16(whole ? float(int(x % 5) - 2) : float(x >> 40) * (2.0f / 16777216.0f) - 1.0f);
}

__global__ void multiply(int m, int n, int k, Bf16 const* a, Bf16 const* b, double* d) {
  size_t const index = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (index >= size_t(m) * n) return;
  Bf16 const* const row = a + index / n * k;
  Bf16 const* const column = b + index % n * k;
  double sum = 0.0;
  for (int p = 0; p < k; ++p) sum += double(float(row[p])) * double(float(column[p]));
  d[index] = sum;
}

template <class T>
T* allocate(size_t count) {
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}

}  // namespace

int main() {
  struct {
    CrKernel kernel;
    bool column_major;  // D
    bool slices = false;
  } const kernels[] = {{sm90::entry<Small>("128x32"), false},
                       {sm90::entry<Cluster>("128x128 2x1"), false},
                       {sm90::entry<ColumnMajor>("256x48 1x2, D column-major"), true},
                       {sm90::entry<Large>("128x256"), false},
                       {sm90::entry<Slices>("64x32 slices"), false, true},
                       {sm90::entry<TmaSlices>("64x96 1x2 slices"), false, true},
                       {sm90::entry<ColumnMajorSlices>("64x16 2x1 slices, D column-major"), true, true}};
  // Aligned; ragged in every dimension; more work units than CTAs; one tile of a long K.
  int const shapes[][3] = {{256, 256, 8192}, {200, 136, 4104}, {1032, 1544, 2056}, {64, 32, 16384}};
  size_t const most = size_t(2) << 20, workspace_bytes = size_t(1) << 30;
  Bf16 *a = allocate<Bf16>(4 * most), *b = allocate<Bf16>(4 * most), *d = allocate<Bf16>(most);
  double* reference = allocate<double>(most);
  void* workspace = allocate<char>(workspace_bytes);
  CHECK(cudaMemset(workspace, 0xFF, workspace_bytes));  // NaN, and flags that are raised
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int device = 0, sm_count = 0;
  CHECK(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device));
  int failures = 0, launches = 0;

  for (bool whole : {true, false}) {
    for (auto const& shape : shapes) {
      int const m = shape[0], n = shape[1], k = shape[2];
      size_t const size_a = size_t(m) * k, size_b = size_t(n) * k, size_d = size_t(m) * n;
      fill<<<unsigned((size_a + 255) / 256), 256, 0, stream>>>(a, size_a, 1, whole);
      fill<<<unsigned((size_b + 255) / 256), 256, 0, stream>>>(b, size_b, 2, whole);
      multiply<<<unsigned((size_d + 255) / 256), 256, 0, stream>>>(m, n, k, a, b, reference);
      std::vector<double> expected(size_d);
      CHECK(cudaMemcpyAsync(expected.data(), reference, size_d * sizeof(double), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      for (auto const& [kernel, column_major, slices] : kernels) {
        CrGemm const gemm{m, n, k, a, b, d, workspace, device, sm_count};
        void* const state = std::aligned_alloc(128, (kernel.state_bytes + 127) / 128 * 128);
        for (int splits : {2, 3, 4, 5, 6, 7, 8, 12, 16}) {
          for (int decomposition : {5, 6, 2}) {
            CrLaunch const launch{0, 1, decomposition, splits};
            // Slices are of equal length and begin at multiples of 16 bytes.
            if (slices && (decomposition != 6 || k % (8 * splits) != 0)) {
              if (kernel.prepare(&gemm, &launch, state) != CR_REFUSED) {
                std::printf("%s: took K = %d in %d slices, decomposition %d\n", kernel.name, k, splits, decomposition);
                ++failures;
              }
              continue;
            }
            if (kernel.workspace_bytes(&gemm, &launch) > workspace_bytes ||
                kernel.prepare(&gemm, &launch, state) != CR_OK) {
              std::printf("%s %dx%dx%d, decomposition %d, %d splits: refused\n", kernel.name, m, n, k, decomposition, splits);
              ++failures;
              continue;
            }
            std::vector<uint16_t> first(size_d), again(size_d);
            for (int repeat = 0; repeat < 3; ++repeat) {
              CHECK(cudaMemsetAsync(d, 0xFF, size_d * sizeof(Bf16), stream));
              for (int i = 0; i < 1 + 10 * repeat; ++i) {  // one after the other, without a pause
                if (kernel.launch(state, stream) != CR_OK) {
                  std::printf("%s: launch failed\n", kernel.name);
                  return 1;
                }
                ++launches;
              }
              auto& out = repeat == 0 ? first : again;
              CHECK(cudaMemcpyAsync(out.data(), d, size_d * sizeof(Bf16), cudaMemcpyDeviceToHost, stream));
              CHECK(cudaStreamSynchronize(stream));
              size_t wrong = 0, different = 0;
              for (size_t i = 0; i < size_d; ++i) {
                float const value = float(Bf16::bitcast(out[i]));
                double const right_value = expected[column_major ? i % m * n + i / m : i];
                // bfloat16 keeps 8 bits; besides, tensor cores cut off where they add.
                double const tolerance = std::abs(right_value) / 256 + 1e-2;
                bool const right = whole ? value == float(Bf16(float(right_value))) : std::abs(value - right_value) <= tolerance;
                wrong += !right;
                different += repeat > 0 && out[i] != first[i];
              }
              if (wrong + different > 0) {
                std::printf("%s %dx%dx%d, decomposition %d, %d splits, repeat %d: %zu wrong, %zu other bits\n", kernel.name,
                            m, n, k, decomposition, splits, repeat, wrong, different);
                ++failures;
              }
            }
          }
        }
        CrLaunch const unknown{0, 1, CR_DECOMPOSITIONS, 2};
        if (kernel.prepare(&gemm, &unknown, state) != CR_REFUSED) {
          std::printf("%s: took an unknown decomposition\n", kernel.name);
          ++failures;
        }
        std::free(state);
      }
    }
  }
  std::printf("%d launches, %d failures\n", launches, failures);
  return failures == 0 ? 0 : 1;
}
