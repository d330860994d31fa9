// GPU kernels of the checker: operands, poison, guards, delays, and what decides whether an output is right.
// Each function enqueues work on `stream` and throws if it cannot be launched. All kernels are named cr_*.
#pragma once
#include "support.h"

namespace cr {

enum class Element : int { kBf16 = 0, kF16 = 1 };

// Element (i, j) of a matrix lies at i * row + j * column.
struct Strides {
  int64_t row, column;
};

// A matrix of 16-bit values in device memory.
struct Matrix {
  void const* data;
  int64_t rows, columns;
  Strides strides;
};

// Distributions of operands; values depend only on (distribution, scale, seed, position).
enum class Distribution : int {
  kNormal = 0,   // standard deviation `scale`
  kUniform = 1,  // in [-scale, scale)
  kInteger = 2,  // -3..3 times scale
  kOutlier = 3,  // normal, one in 512 values 16 times as large
  kBlocks = 4,   // normal, each run of 64 values scaled by a power of two from 1/4 to 4
};

void fill(void* out, int64_t count, Element element, Distribution distribution, float scale, uint64_t seed,
          cudaStream_t stream);

// Overwrites `bytes` (a multiple of 2) with NaNs.
void poison(void* out, int64_t bytes, cudaStream_t stream);

// Adds to `*changed` the number of bytes of a guard zone that are no longer as `poison` left them.
void check_guard(void const* guard, int64_t bytes, unsigned long long* changed, cudaStream_t stream);

// Adds a checksum of `count` 16-bit values, which depends on values and positions, to `*sum`.
void checksum(void const* data, int64_t count, unsigned long long* sum, cudaStream_t stream);

// Writes `bytes` of `buffer`, which evicts everything else from L2.
void flush(void* buffer, int64_t bytes, uint32_t value, cudaStream_t stream);

// Occupies the stream for `nanoseconds`, so that what is enqueued behind it starts without gaps.
void delay(uint64_t nanoseconds, cudaStream_t stream);

// A kernel that marks the end of a window of activity records.
void mark_end(cudaStream_t stream);

// A kernel that does nothing.
void null_kernel(cudaStream_t stream);

// Vectors for the product check; device memory.
struct ProductCheck {
  float* signs;      // n random signs x
  float* projected;  // k: B x
  float* expected;   // m: A (B x)
  float* actual;     // m: D x
  float* squares;    // m: sum of squares of each row of D
  unsigned long long* wrong;
};

// Freivalds' check with x drawn from `seed`: adds to `*check.wrong` the number of rows i with
// |(D x)_i - (A (B x))_i| > 0.03 ||D_i|| + 0.01 sqrt(n). A row that is stale, poisoned or lacks 16 columns misses by more.
void check_product(Matrix const& a, Matrix const& b, Matrix const& d, Element element, uint64_t seed,
                   ProductCheck const& check, cudaStream_t stream);

// Plain float32-accumulated product into row-major `out`.
void plain_gemm(Matrix const& a, Matrix const& b, Element element, float* out, cudaStream_t stream);

// What a comparison with the reference found; device memory, zeroed by the caller.
struct Comparison {
  unsigned long long wrong;      // elements that miss the tolerance
  unsigned long long unwritten;  // of these, elements that still hold the poison
  unsigned long long close;      // elements that the float32 reference could not decide
  unsigned long long first;      // row-major index of the first wrong element; ~0 if none
  int max_absolute, max_relative;  // bits of non-negative floats; over elements that were written
};

// Compares d with a row-major float32 reference: wrong is !(|d - r| <= atol + rtol |r|). Where the error lies within 5%
// of the tolerance, r is computed again in float64 and decides. Elements before `from` are not looked at.
void compare(Matrix const& a, Matrix const& b, Matrix const& d, Element element, float const* reference, float atol,
             float rtol, unsigned long long from, Comparison* result, cudaStream_t stream);

// Largest |float32 - float64| / (1 + |float64|) of the reference over `samples` pseudo-random elements.
void check_reference(Matrix const& a, Matrix const& b, Element element, float const* reference, int64_t samples,
                     uint64_t seed, float* worst, cudaStream_t stream);

}  // namespace cr
