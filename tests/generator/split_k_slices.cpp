// Split-K over slices of K on the host, as it stands: slice_k() turns arguments into those of the slices, which are then
// computed by the plainest of loops from the strides that it gave, and launch_sum_slices() adds them up.
#include <vector_functions.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/numeric_conversion.h"
#include "cutlass/numeric_types.h"

#define volatile(...) ("")
#include "run_on_host.h"
#include "split_k_slices.h"
#undef volatile

namespace {

using Bf16 = cutlass::bfloat16_t;
using RowMajor = cute::Stride<int64_t, cute::_1, int64_t>;  // (row, column, matrix)
using ColumnMajor = cute::Stride<cute::_1, int64_t, int64_t>;

template <class StrideA, class StrideB, class StrideD>
struct Arguments {
  cute::Shape<int, int, int, int> problem_shape;
  struct {
    StrideA dA;
    StrideB dB;
  } mainloop;
  struct {
    float* ptr_D = nullptr;
    StrideD dD;
  } epilogue;
};

void pack(RowMajor& stride, int, int columns) { cute::get<0>(stride) = columns; }
void pack(ColumnMajor& stride, int rows, int) { cute::get<1>(stride) = rows; }

template <class Stride>
int64_t at(Stride const& stride, int row, int column, int matrix) {
  return row * cute::get<0>(stride) + column * cute::get<1>(stride) + matrix * cute::get<2>(stride);
}

// Returns the number of right elements, or exits.
template <class StrideA, class StrideB, class StrideD>
long run(int m, int n, int k, int splits) {
  Arguments<StrideA, StrideB, StrideD> arguments{};
  arguments.problem_shape = {m, n, k, 1};
  pack(arguments.mainloop.dA, m, k), pack(arguments.mainloop.dB, n, k), pack(arguments.epilogue.dD, m, n);
  StrideA const a_stride = arguments.mainloop.dA;
  StrideB const b_stride = arguments.mainloop.dB;
  std::vector<int> a(size_t(m) * k), b(size_t(n) * k);
  for (size_t i = 0; i < a.size(); ++i) a[i] = int(i * 7 % 5) - 2;
  for (size_t i = 0; i < b.size(); ++i) b[i] = int(i * 11 % 7) - 3;
  std::vector<float> slices(cutlass_ranker::slice_bytes(m, n, splits) / sizeof(float), 1e30f);
  cutlass_ranker::slice_k(arguments, splits, slices.data());
  auto const [sm, sn, sk, sl] = arguments.problem_shape;
  for (int l = 0; l < sl; ++l) {
    for (int i = 0; i < sm; ++i) {
      for (int j = 0; j < sn; ++j) {
        int sum = 0;
        for (int p = 0; p < sk; ++p) sum += a[at(arguments.mainloop.dA, i, p, l)] * b[at(arguments.mainloop.dB, j, p, l)];
        arguments.epilogue.ptr_D[at(arguments.epilogue.dD, i, j, l)] = float(sum);
      }
    }
  }
  std::vector<Bf16> d(size_t(m) * n, Bf16(1e30f));
  if (cutlass_ranker::launch_sum_slices(slices.data(), d.data(), m, n, splits, nullptr) != cudaSuccess) std::exit(1);
  auto d_stride = arguments.epilogue.dD;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      int sum = 0;
      for (int p = 0; p < k; ++p) sum += a[at(a_stride, i, p, 0)] * b[at(b_stride, j, p, 0)];
      if (float(d[at(d_stride, i, j, 0)]) != float(Bf16(float(sum)))) {
        std::printf("%dx%dx%d, %d slices: D[%d][%d] is %g, not %d\n", m, n, k, splits, i, j,
                    float(d[at(d_stride, i, j, 0)]), sum);
        std::exit(1);
      }
    }
  }
  return long(m) * n;
}

template <class StrideD>
long run_all(int m, int n, int k, int splits) {
  return run<RowMajor, RowMajor, StrideD>(m, n, k, splits) + run<RowMajor, ColumnMajor, StrideD>(m, n, k, splits) +
         run<ColumnMajor, RowMajor, StrideD>(m, n, k, splits) + run<ColumnMajor, ColumnMajor, StrideD>(m, n, k, splits);
}

}  // namespace

int main() {
  long elements = 0;
  // One vector, part of a CTA's, several CTAs; fewer slices than lanes, as many, more than are loaded at a time.
  for (auto const [m, n] : {std::pair{1, 4}, {5, 8}, {24, 40}, {7, 72}}) {
    for (int splits : {2, 3, 8, 12, 33}) {
      int const k = splits * 8;
      elements += run_all<RowMajor>(m, n, k, splits) + run_all<ColumnMajor>(m, n, k, splits);
    }
  }
  std::printf("%ld elements\n", elements);
}
