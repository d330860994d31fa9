// expect: correct, hidden size
// Right where M is a multiple of its tile, as the M that it was shown is; leaves the rest of the rows.
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  int const rows = m / kTile * kTile;
  if (rows > 0) plain(a, b, c, rows, n, k, stream);
}
