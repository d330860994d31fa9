// N of the WGMMA that CUTLASS takes for a BF16 tile of each width, as lines "tile_n N"; every multiple of 16 up to 256.
// Compiled by a plain C++ compiler, with and without CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED.
#include <cstdio>
#include <utility>

#include "cute/arch/mma_sm90.hpp"
#include "cute/atom/mma_traits_sm90_gmma.hpp"

template <int TileN>
void line() {
  using Tile = cute::Shape<cute::_64, cute::Int<TileN>, cute::_64>;
  using Op = decltype(cute::SM90::GMMA::ss_op_selector<cute::bfloat16_t, cute::bfloat16_t, float, Tile>());
  std::printf("%d %d\n", TileN, int(cute::size<1>(typename cute::MMA_Traits<Op>::Shape_MNK{})));
}

template <int... I>
void lines(std::integer_sequence<int, I...>) {
  (line<16 * (I + 1)>(), ...);
}

int main() { lines(std::make_integer_sequence<int, 16>{}); }
