/* board.h - the file of ZD_STANDIN_BOARD: what processes take of GPUs. */
#pragma once

#include <atomic>
#include <cstdint>

struct board_slot {
    std::atomic<int32_t> pid; /* 0: nobody's */
    std::atomic<int32_t> gpu;
    std::atomic<uint64_t> bytes;
};
struct board {
    struct board_slot slots[256];
};
