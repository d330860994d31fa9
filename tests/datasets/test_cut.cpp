// Cutting activity records into launches, without a GPU. Exit status: number of the first check that fails, or 0.
#include <cstdio>

#include "trace.h"

using cr::Kind;
using cr::Record;
using cr::Span;

int main() {
  std::vector<Span> spans;
  // Out of order, with a leftover from before (a launch that no flush precedes), a launch of a memset and a kernel that
  // start within one tick, a launch without records, and one after the end.
  std::vector<Record> const records = {
      {9000, 9100, 60, Kind::kLaunch}, {5000, 6000, 40, Kind::kFlush},  {512, 900, 5, Kind::kLaunch},
      {3328, 4096, 31, Kind::kLaunch}, {3328, 3400, 30, Kind::kLaunch}, {1000, 2000, 10, Kind::kFlush},
      {2048, 2304, 20, Kind::kLaunch}, {2500, 3200, 25, Kind::kFlush},  {7000, 7100, 50, Kind::kEnd},
  };
  if (!cr::cut(records, 3, spans) || spans.size() != 3) return 1;
  if (spans[0].start != 2048 || spans[0].end != 2304 || spans[0].records != 1) return 2;
  if (spans[1].start != 3328 || spans[1].end != 4096 || spans[1].records != 2) return 3;
  if (spans[2].records != 0) return 4;
  // Too few or too many flushes, or no end: incomplete.
  if (cr::cut(records, 4, spans) || cr::cut(records, 2, spans)) return 5;
  if (cr::cut({records.begin(), records.end() - 1}, 3, spans)) return 6;
  // An untimed launch after an aside belongs to no span; the flush after it begins the next.
  std::vector<Record> const asides = {
      {100, 200, 1, Kind::kAside},  {300, 400, 2, Kind::kLaunch},  {500, 600, 3, Kind::kFlush},
      {700, 800, 4, Kind::kLaunch}, {900, 950, 5, Kind::kAside},   {1000, 1100, 6, Kind::kLaunch},
      {1200, 1300, 7, Kind::kFlush}, {1400, 1450, 8, Kind::kLaunch}, {1500, 1600, 9, Kind::kEnd},
  };
  if (!cr::cut(asides, 2, spans) || spans[0].start != 700 || spans[0].end != 800 || spans[0].records != 1) return 8;
  if (spans[1].start != 1400 || spans[1].end != 1450 || spans[1].records != 1) return 9;
  // Only the last batch counts.
  std::vector<Record> two = records;
  two.push_back({10000, 11000, 70, Kind::kFlush});
  two.push_back({11000, 11500, 71, Kind::kLaunch});
  two.push_back({12000, 12100, 72, Kind::kEnd});
  if (!cr::cut(two, 1, spans) || spans[0].start != 11000 || spans[0].end != 11500) return 7;
  return 0;
}
