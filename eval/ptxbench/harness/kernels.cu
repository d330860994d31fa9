#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4096;
constexpr uint16_t kPoison = 0xFFFF;  // a NaN in both element types

__device__ uint64_t mix(uint64_t x) {  // finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

template <cr::Element kElement>
__device__ float load(void const* data, int64_t index) {
  if constexpr (kElement == cr::Element::kBf16) return __bfloat162float(static_cast<__nv_bfloat16 const*>(data)[index]);
  return __half2float(static_cast<__half const*>(data)[index]);
}

template <cr::Element kElement>
__device__ void store(void* data, int64_t index, float value) {
  if constexpr (kElement == cr::Element::kBf16) {
    static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
  } else {
    static_cast<__half*>(data)[index] = __float2half_rn(value);
  }
}

__device__ int64_t first_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t stride() { return int64_t{blockDim.x} * gridDim.x; }

__device__ float draw(cr::Distribution distribution, uint64_t bits, int64_t i, uint64_t seed) {
  float const u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;  // (0, 1]
  float const v = static_cast<float>(bits & 0xFFFFFFu) * 0x1p-24f;     // [0, 1)
  if (distribution == cr::Distribution::kUniform) return 2.0f * v - 1.0f;
  if (distribution == cr::Distribution::kInteger) return static_cast<float>(static_cast<int>((bits >> 20) % 7) - 3);
  float const normal = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);  // Box-Muller
  if (distribution == cr::Distribution::kOutlier) return mix(bits) % 512 == 0 ? 16.0f * normal : normal;
  if (distribution == cr::Distribution::kBlocks) {
    return ldexpf(normal, static_cast<int>(mix(seed ^ static_cast<uint64_t>(i / 64)) % 5) - 2);
  }
  return normal;
}

template <cr::Element kElement>
__global__ void cr_fill(void* out, int64_t count, cr::Distribution distribution, float scale, uint64_t seed) {
  for (int64_t i = first_index(); i < count; i += stride()) {
    uint64_t const bits = mix(seed ^ mix(static_cast<uint64_t>(i)));
    store<kElement>(out, i, scale * draw(distribution, bits, i, seed));
  }
}

__global__ void cr_poison(uint16_t* out, int64_t count) {
  for (int64_t i = first_index(); i < count; i += stride()) out[i] = kPoison;
}

__global__ void cr_guard(uint16_t const* guard, int64_t count, unsigned long long* changed) {
  for (int64_t i = first_index(); i < count; i += stride()) {
    if (guard[i] != kPoison) atomicAdd(changed, 2ull);
  }
}

__global__ void cr_checksum(uint16_t const* data, int64_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (int64_t i = first_index(); i < count; i += stride()) mine += mix((static_cast<uint64_t>(i) << 16) ^ data[i]);
  atomicAdd(sum, mine);
}

__global__ void cr_flush(uint4* buffer, int64_t count, uint32_t value) {
  uint4 const pattern = make_uint4(value, value + 1, value + 2, value + 3);
  for (int64_t i = first_index(); i < count; i += stride()) buffer[i] = pattern;
}

__device__ uint64_t now() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

__global__ void cr_delay(uint64_t nanoseconds) {
  uint64_t const start = now();
  while (now() - start < nanoseconds) __nanosleep(200);
}

__global__ void cr_end() {}

__global__ void cr_null() {}

__global__ void cr_signs(float* out, int64_t count, uint64_t seed) {
  for (int64_t i = first_index(); i < count; i += stride()) {
    out[i] = (mix(seed ^ mix(static_cast<uint64_t>(i))) & 1u) != 0 ? 1.0f : -1.0f;
  }
}

// out[r] = sum over c of X(r, c) v(c); one warp a row, for matrices that are contiguous along c.
template <cr::Element kElement>
__global__ void cr_rows(cr::Matrix x, float const* v, float* out, float* squares) {
  int64_t const row = first_index() / 32;
  if (row >= x.rows) return;
  float sum = 0.0f, square = 0.0f;
  for (int64_t c = threadIdx.x % 32; c < x.columns; c += 32) {
    float const value = load<kElement>(x.data, row * x.strides.row + c * x.strides.column);
    sum = fmaf(value, v[c], sum);
    square = fmaf(value, value, square);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
    square += __shfl_down_sync(0xFFFFFFFFu, square, offset);
  }
  if (threadIdx.x % 32 == 0) {
    out[row] = sum;
    if (squares != nullptr) squares[row] = square;
  }
}

constexpr int kSlice = 64;  // columns that one thread of cr_columns adds up

// The same for matrices that are contiguous along r: one thread a row and slice of columns; `out` must be zeroed.
template <cr::Element kElement>
__global__ void cr_columns(cr::Matrix x, float const* v, float* out, float* squares) {
  int64_t const row = first_index();
  if (row >= x.rows) return;
  int64_t const first = int64_t{blockIdx.y} * kSlice;
  int64_t const last = first + kSlice < x.columns ? first + kSlice : x.columns;
  float sum = 0.0f, square = 0.0f;
  for (int64_t c = first; c < last; ++c) {
    float const value = load<kElement>(x.data, row * x.strides.row + c * x.strides.column);
    sum = fmaf(value, v[c], sum);
    square = fmaf(value, value, square);
  }
  atomicAdd(out + row, sum);
  if (squares != nullptr) atomicAdd(squares + row, square);
}

__global__ void cr_verdict(cr::ProductCheck check, int64_t rows, float per_column) {
  for (int64_t i = first_index(); i < rows; i += stride()) {
    float const tolerance = 0.03f * sqrtf(check.squares[i]) + per_column;
    if (!(fabsf(check.actual[i] - check.expected[i]) <= tolerance)) atomicAdd(check.wrong, 1ull);
  }
}

constexpr int kTile = 16;

template <cr::Element kElement>
__global__ void cr_plain_gemm(cr::Matrix a, cr::Matrix b, float* out) {
  __shared__ float tile_a[kTile][kTile + 1];
  __shared__ float tile_b[kTile][kTile + 1];
  int const tx = threadIdx.x, ty = threadIdx.y;
  int64_t const i = int64_t{blockIdx.x} * kTile + ty, j = int64_t{blockIdx.y} * kTile + tx;
  float sum = 0.0f;
  for (int64_t k0 = 0; k0 < a.columns; k0 += kTile) {
    int64_t const ka = k0 + tx, kb = k0 + ty;
    bool const in_a = i < a.rows && ka < a.columns, in_b = j < b.columns && kb < b.rows;
    tile_a[ty][tx] = in_a ? load<kElement>(a.data, i * a.strides.row + ka * a.strides.column) : 0.0f;
    tile_b[ty][tx] = in_b ? load<kElement>(b.data, kb * b.strides.row + j * b.strides.column) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kTile; ++p) sum = fmaf(tile_a[ty][p], tile_b[p][tx], sum);
    __syncthreads();
  }
  if (i < a.rows && j < b.columns) out[i * b.columns + j] = sum;
}

template <cr::Element kElement>
__device__ double exact(cr::Matrix const& a, cr::Matrix const& b, int64_t i, int64_t j) {
  double sum = 0.0;
  for (int64_t k = 0; k < a.columns; ++k) {
    double const x = load<kElement>(a.data, i * a.strides.row + k * a.strides.column);
    double const y = load<kElement>(b.data, k * b.strides.row + j * b.strides.column);
    sum = fma(x, y, sum);
  }
  return sum;
}

template <cr::Element kElement>
__global__ void cr_compare(cr::Matrix a, cr::Matrix b, cr::Matrix d, float const* reference, float atol, float rtol,
                           unsigned long long from, cr::Comparison* result) {
  int64_t const count = d.rows * d.columns;
  for (int64_t index = first_index() + static_cast<int64_t>(from); index < count; index += stride()) {
    int64_t const i = index / d.columns, j = index % d.columns;
    int64_t const place = i * d.strides.row + j * d.strides.column;
    bool const unwritten = static_cast<uint16_t const*>(d.data)[place] == kPoison;
    float const value = load<kElement>(d.data, place);
    double expected = reference[index];
    double error = fabs(value - expected);
    double tolerance = atol + rtol * fabs(expected);
    if (fabs(error - tolerance) <= 0.05 * tolerance) {
      expected = exact<kElement>(a, b, i, j);
      error = fabs(value - expected);
      tolerance = atol + rtol * fabs(expected);
      atomicAdd(&result->close, 1ull);
    }
    if (!(error <= tolerance)) {
      atomicAdd(&result->wrong, 1ull);
      atomicMin(&result->first, static_cast<unsigned long long>(index));
      if (unwritten) atomicAdd(&result->unwritten, 1ull);
    }
    if (!unwritten) {
      float const absolute = isnan(error) ? __int_as_float(0x7F800000) : static_cast<float>(error);
      float const relative = absolute / (static_cast<float>(fabs(expected)) + 1e-8f);
      // Non-negative floats compare like their bits.
      if (__float_as_int(absolute) > result->max_absolute) atomicMax(&result->max_absolute, __float_as_int(absolute));
      if (__float_as_int(relative) > result->max_relative) atomicMax(&result->max_relative, __float_as_int(relative));
    }
  }
}

template <cr::Element kElement>
__global__ void cr_check_reference(cr::Matrix a, cr::Matrix b, float const* reference, int64_t samples, uint64_t seed,
                                   float* worst) {
  int64_t const count = a.rows * b.columns;
  for (int64_t s = first_index(); s < samples; s += stride()) {
    int64_t const index = static_cast<int64_t>(mix(seed ^ mix(static_cast<uint64_t>(s))) % static_cast<uint64_t>(count));
    double const expected = exact<kElement>(a, b, index / b.columns, index % b.columns);
    float const difference = static_cast<float>(fabs(reference[index] - expected) / (1.0 + fabs(expected)));
    float const bounded = difference == difference ? difference : __int_as_float(0x7F800000);
    atomicMax(reinterpret_cast<int*>(worst), __float_as_int(bounded));
  }
}

int blocks(int64_t items) {
  int64_t const wanted = (items + kThreads - 1) / kThreads;
  return static_cast<int>(wanted < 1 ? 1 : wanted < kBlocks ? wanted : kBlocks);
}

void launched(char const* what) { cr::check(cudaGetLastError(), what); }

template <cr::Element kElement>
void times_vector(cr::Matrix const& x, float const* v, float* out, float* squares, cudaStream_t stream) {
  if (x.strides.column == 1) {
    cr_rows<kElement><<<static_cast<unsigned>((x.rows * 32 + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
        x, v, out, squares);
  } else {
    cr::check(cudaMemsetAsync(out, 0, sizeof(float) * x.rows, stream), "clear product");
    if (squares != nullptr) cr::check(cudaMemsetAsync(squares, 0, sizeof(float) * x.rows, stream), "clear squares");
    dim3 const grid(static_cast<unsigned>((x.rows + kThreads - 1) / kThreads),
                    static_cast<unsigned>((x.columns + kSlice - 1) / kSlice));
    cr_columns<kElement><<<grid, kThreads, 0, stream>>>(x, v, out, squares);
  }
  launched("matrix times vector");
}

}  // namespace

namespace cr {

void fill(void* out, int64_t count, Element element, Distribution distribution, float scale, uint64_t seed,
          cudaStream_t stream) {
  auto const kernel = element == Element::kBf16 ? cr_fill<Element::kBf16> : cr_fill<Element::kF16>;
  kernel<<<blocks(count), kThreads, 0, stream>>>(out, count, distribution, scale, seed);
  launched("fill operands");
}

void poison(void* out, int64_t bytes, cudaStream_t stream) {
  cr_poison<<<blocks(bytes / 2), kThreads, 0, stream>>>(static_cast<uint16_t*>(out), bytes / 2);
  launched("poison");
}

void check_guard(void const* guard, int64_t bytes, unsigned long long* changed, cudaStream_t stream) {
  cr_guard<<<blocks(bytes / 2), kThreads, 0, stream>>>(static_cast<uint16_t const*>(guard), bytes / 2, changed);
  launched("check guard");
}

void checksum(void const* data, int64_t count, unsigned long long* sum, cudaStream_t stream) {
  cr_checksum<<<blocks(count), kThreads, 0, stream>>>(static_cast<uint16_t const*>(data), count, sum);
  launched("checksum");
}

void flush(void* buffer, int64_t bytes, uint32_t value, cudaStream_t stream) {
  int64_t const count = bytes / static_cast<int64_t>(sizeof(uint4));
  cr_flush<<<blocks(count), kThreads, 0, stream>>>(static_cast<uint4*>(buffer), count, value);
  launched("flush L2");
}

void delay(uint64_t nanoseconds, cudaStream_t stream) {
  cr_delay<<<1, 1, 0, stream>>>(nanoseconds);
  launched("delay");
}

void mark_end(cudaStream_t stream) {
  cr_end<<<1, 1, 0, stream>>>();
  launched("end mark");
}

void null_kernel(cudaStream_t stream) {
  cr_null<<<1, 1, 0, stream>>>();
  launched("null kernel");
}

void check_product(Matrix const& a, Matrix const& b, Matrix const& d, Element element, uint64_t seed,
                   ProductCheck const& check, cudaStream_t stream) {
  auto const product = element == Element::kBf16 ? times_vector<Element::kBf16> : times_vector<Element::kF16>;
  cr_signs<<<blocks(d.columns), kThreads, 0, stream>>>(check.signs, d.columns, seed);
  launched("signs");
  product(b, check.signs, check.projected, nullptr, stream);
  product(a, check.projected, check.expected, nullptr, stream);
  product(d, check.signs, check.actual, check.squares, stream);
  cr_verdict<<<blocks(d.rows), kThreads, 0, stream>>>(check, d.rows, 0.01f * sqrtf(static_cast<float>(d.columns)));
  launched("verdict");
}

void plain_gemm(Matrix const& a, Matrix const& b, Element element, float* out, cudaStream_t stream) {
  dim3 const grid(static_cast<unsigned>((a.rows + kTile - 1) / kTile),
                  static_cast<unsigned>((b.columns + kTile - 1) / kTile));
  if (grid.y > 65535) throw Failure(Code::kFailed, "N is too large for the plain reference kernel");
  auto const kernel = element == Element::kBf16 ? cr_plain_gemm<Element::kBf16> : cr_plain_gemm<Element::kF16>;
  kernel<<<grid, dim3(kTile, kTile), 0, stream>>>(a, b, out);
  launched("plain reference");
}

void compare(Matrix const& a, Matrix const& b, Matrix const& d, Element element, float const* reference, float atol,
             float rtol, unsigned long long from, Comparison* result, cudaStream_t stream) {
  auto const kernel = element == Element::kBf16 ? cr_compare<Element::kBf16> : cr_compare<Element::kF16>;
  kernel<<<blocks(d.rows * d.columns), kThreads, 0, stream>>>(a, b, d, reference, atol, rtol, from, result);
  launched("compare");
}

void check_reference(Matrix const& a, Matrix const& b, Element element, float const* reference, int64_t samples,
                     uint64_t seed, float* worst, cudaStream_t stream) {
  auto const kernel = element == Element::kBf16 ? cr_check_reference<Element::kBf16> : cr_check_reference<Element::kF16>;
  kernel<<<blocks(samples), kThreads, 0, stream>>>(a, b, reference, samples, seed, worst);
  launched("check reference");
}

}  // namespace cr
