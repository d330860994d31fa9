// The runner's own GPU kernels. Each function enqueues one kernel and throws if it cannot be launched.
#pragma once
#include "support.h"

namespace cr {

// Operand layout of the reference kernel: element (i, j) of X lies at i * row + j * column.
struct Strides {
  int64_t row, column;
};

// Normal bfloat16 values of standard deviation `scale` that depend only on (seed, position).
void fill_normal(void* out, int64_t count, float scale, uint64_t seed, cudaStream_t stream);

// Kernels of the runner between launches, whose records end a launch's span, are named cr_aside_*.

// Overwrites `count` 16-bit values with a NaN pattern.
void poison(void* out, int64_t count, int sm_count, cudaStream_t stream);

// Writes `bytes` (may be 0) of `buffer`, which evicts everything else from L2. On entry stores `sequence` in `*marker`
// (mapped host memory): everything enqueued before has finished. Named cr_flush: the span of a timed launch begins.
void flush(void* buffer, size_t bytes, uint32_t sequence, uint32_t* marker, int sm_count, cudaStream_t stream);

// Precedes an untimed launch; on entry stores `sequence` in `*marker`.
void begin_untimed(uint32_t sequence, uint32_t* marker, cudaStream_t stream);

// Ends a batch (named cr_end, which the trace looks for); on entry stores `sequence` in `*marker`.
void end_batch(uint32_t sequence, uint32_t* marker, cudaStream_t stream);

// Adds to `*wrong` the number of elements where !(|d - reference| <= atol + rtol * |reference|); d is bfloat16.
void compare(void const* d, float const* reference, int64_t count, float atol, float rtol, unsigned long long* wrong,
             int sm_count, cudaStream_t stream);

// Fixed work (64 MB read, 128 FMAs per value) whose time tells how fast the GPU runs at the moment.
constexpr size_t kProbeBytes = size_t{64} << 20;
void probe(void const* buffer, float* out, int sm_count, cudaStream_t stream);

// A kernel that does nothing.
void null_kernel(cudaStream_t stream);

// Plain float32-accumulated product of bfloat16 operands, D(i, j) = sum A(i, k) B(k, j).
void naive_gemm(void const* a, Strides a_strides, void const* b, Strides b_strides, float* d, Strides d_strides,
                int m, int n, int k, cudaStream_t stream);

// Largest |x - y| / (1 + |y|) over `count` values, written to `*worst` (device memory, zeroed by the caller).
void largest_difference(float const* x, float const* y, int64_t count, float* worst, cudaStream_t stream);

}  // namespace cr
