#include "support/amx_emulator.h"

#if defined(__x86_64__)

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <ucontext.h>

#include "support/bf16_dot_model.h"

namespace mpt::test {
namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

std::atomic<int64_t> products_met{0};

struct Tile {
  int rows = 0, row_bytes = 0;
  uint8_t data[kRows][kRowBytes] = {};
};
struct Tiles {
  bool configured = false;
  std::array<Tile, kTiles> all;
};
thread_local Tiles tiles;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "AmxEmulator: %s\n", what);
  std::abort();
}
void require(bool good, const char* what) {
  if (!good) fail(what);
}

// A VEX instruction of map 0F38 with three bytes of prefix, decoded.
struct Instruction {
  enum class Prefix : uint8_t { kNone, k66, kF3, kF2 };
  Prefix prefix;
  uint8_t opcode;
  int reg, rm, vvvv;
  bool memory;
  int64_t length;
  uintptr_t address = 0;  // for memory operands: base and displacement
  int64_t stride = 0;     // index times scale
};

constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};

template <class T>
T read_as(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Instruction decode(const uint8_t* code, const greg_t* registers) {
  require(code[0] == 0xC4 && (code[1] & 0x1F) == 2, "an instruction that is not of AMX");
  const bool extends_index = (code[1] & 0x40) == 0, extends_base = (code[1] & 0x20) == 0;
  require((code[2] & 0x84) == 0, "W or L is set");
  Instruction i{.prefix = Instruction::Prefix(code[2] & 3),
                .opcode = code[3],
                .reg = (code[4] >> 3) & 7,
                .rm = code[4] & 7,
                .vvvv = (~code[2] >> 3) & 15,
                .memory = code[4] >> 6 != 3,
                .length = 5};
  if (!i.memory) return i;
  const int mode = code[4] >> 6;
  const auto value = [&](int number) { return int64_t(registers[kRegisters[number]]); };
  const uint8_t* at = code + 5;
  int64_t base = 0;
  bool relative = false, has_base = true;
  if (i.rm == 4) {
    const uint8_t sib = *at++;
    const int index = ((sib >> 3) & 7) + (extends_index ? 8 : 0), low = sib & 7;
    if (index != 4) i.stride = value(index) << (sib >> 6);
    has_base = mode != 0 || low != 5;
    if (has_base) base = value(low + (extends_base ? 8 : 0));
  } else {
    relative = mode == 0 && i.rm == 5;
    has_base = !relative;
    if (has_base) base = value(i.rm + (extends_base ? 8 : 0));
  }
  if (mode == 1) {
    base += read_as<int8_t>(at);
    at += 1;
  } else if (mode == 2 || !has_base) {
    base += read_as<int32_t>(at);
    at += 4;
  }
  i.length = at - code;
  if (relative) base += reinterpret_cast<intptr_t>(at);
  i.address = uintptr_t(base);
  return i;
}

void configure(const uint8_t* shapes) {
  require(shapes[0] == 1 && shapes[1] == 0, "a palette that is not 1, or a row to start from");
  for (int i = 2; i < 16; ++i) require(shapes[i] == 0, "reserved bytes of the shapes are not zero");
  tiles = {};
  tiles.configured = true;
  for (int t = 0; t < 16; ++t) {
    const int row_bytes = read_as<uint16_t>(shapes + 16 + 2 * t), rows = shapes[48 + t];
    if (t >= kTiles) {
      require(row_bytes == 0 && rows == 0, "more than eight tiles");
      continue;
    }
    require(rows <= kRows && row_bytes <= kRowBytes && row_bytes % 4 == 0 &&
                (rows == 0) == (row_bytes == 0),
            "a tile's shape");
    tiles.all[size_t(t)].rows = rows;
    tiles.all[size_t(t)].row_bytes = row_bytes;
  }
}

Tile& tile_of(int number) {
  require(tiles.configured, "tiles are used before LDTILECFG, or after TILERELEASE");
  require(number < kTiles && tiles.all[size_t(number)].rows > 0, "a tile without a shape");
  return tiles.all[size_t(number)];
}

void load(Tile& tile, const Instruction& i) {
  std::memset(tile.data, 0, sizeof tile.data);
  for (int row = 0; row < tile.rows; ++row)
    std::memcpy(tile.data[row],
                reinterpret_cast<const void*>(i.address + uintptr_t(row * i.stride)),
                size_t(tile.row_bytes));
}
void store(const Tile& tile, const Instruction& i) {
  for (int row = 0; row < tile.rows; ++row)
    std::memcpy(reinterpret_cast<void*>(i.address + uintptr_t(row * i.stride)), tile.data[row],
                size_t(tile.row_bytes));
}

void multiply(Tile& sums, const Tile& a, const Tile& b) {
  require(a.rows == sums.rows && b.row_bytes == sums.row_bytes && a.row_bytes / 4 == b.rows,
          "tiles that do not fit together");
  const int terms = a.row_bytes / 2;
  for (int m = 0; m < sums.rows; ++m)
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      uint16_t of_a[2 * kRows], of_b[2 * kRows];
      for (int t = 0; t < terms; ++t) {
        of_a[t] = read_as<uint16_t>(&a.data[m][2 * t]);
        of_b[t] = read_as<uint16_t>(&b.data[t / 2][4 * n + 2 * (t % 2)]);
      }
      const float sum = tdpbf16ps(read_as<float>(&sums.data[m][4 * n]), {of_a, size_t(terms)},
                                  {of_b, size_t(terms)});
      std::memcpy(&sums.data[m][4 * n], &sum, sizeof sum);
    }
}

void execute(const Instruction& i) {
  using Prefix = Instruction::Prefix;
  if (i.opcode == 0x49 && i.prefix == Prefix::kNone && i.memory)
    return configure(reinterpret_cast<const uint8_t*>(i.address));
  if (i.opcode == 0x49 && i.prefix == Prefix::kNone) {
    tiles = {};
    return;
  }
  if (i.opcode == 0x49 && i.prefix == Prefix::kF2 && !i.memory) {
    std::memset(tile_of(i.reg).data, 0, sizeof(Tile::data));
    return;
  }
  if (i.opcode == 0x4B && i.prefix == Prefix::kF2 && i.memory) return load(tile_of(i.reg), i);
  if (i.opcode == 0x4B && i.prefix == Prefix::kF3 && i.memory) return store(tile_of(i.reg), i);
  if (i.opcode == 0x5C && i.prefix == Prefix::kF3 && !i.memory) {
    require(i.reg != i.rm && i.reg != i.vvvv && i.rm != i.vvvv, "a tile twice");
    ++products_met;
    return multiply(tile_of(i.reg), tile_of(i.rm), tile_of(i.vvvv));
  }
  fail("an instruction that it does not know");
}

void handle(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const Instruction i = decode(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers);
  execute(i);
  registers[REG_RIP] += i.length;
}

}  // namespace

AmxEmulator::AmxEmulator() : former_{} {
  products_met = 0;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  require(sigaction(SIGILL, &action, &former_) == 0, "sigaction() failed");
}
AmxEmulator::~AmxEmulator() { sigaction(SIGILL, &former_, nullptr); }

int64_t AmxEmulator::products() const { return products_met; }

}  // namespace mpt::test

#endif
