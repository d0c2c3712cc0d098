// Division by multiplication against IEEE-754's, bit for bit: all mantissas of divisors with every
// dividend that could round differently, and with all dividends for some divisors.
//   MPT_LONG_TESTS=1 mpt_optim_tests --gtest_filter='SharedDivisor*'
//                                                all divisors; all 2^32 dividends
#include "optim/update/shared_divisor.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/scalar_math.h"
#include "optim/adam_moments.h"

namespace mpt {
namespace {

bool long_tests() {
  const char* const value = std::getenv("MPT_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

constexpr int64_t kLeastMantissa = int64_t{1} << 23, kEndOfMantissas = int64_t{1} << 24;

// Returns a number in [1, 2) or, scaled, in [1/2, 1): quotients depend only on the mantissas.
float of_mantissa(int64_t mantissa) { return std::ldexp(float(mantissa), -23); }

// Returns a^-1 modulo m; they have no common factor.
int64_t inverse(int64_t a, int64_t m) {
  int64_t t = 0, next_t = 1, r = m, next_r = a % m;
  while (next_r != 0) {
    const int64_t times = r / next_r;
    t = std::exchange(next_t, t - times * next_t);
    r = std::exchange(next_r, r - times * next_r);
  }
  return t < 0 ? t + m : t;
}

// Calls f(X) for every mantissa X with 0 < |X 2^k - N C| <= kClose for an integer N.
constexpr int64_t kClose = 8;
template <class F>
void each_close_dividend(int64_t divisor, int k, const F& f) {
  const int64_t common = int64_t{1} << std::min(3, __builtin_ctzll(uint64_t(divisor)));
  const int64_t odd = divisor / common;
  if (odd % 2 == 0) return;  // common > kClose: no remainder but 0, and exact quotients are numbers
  const int64_t of_power = odd == 1 ? 0 : inverse((int64_t{1} << k) / common % odd, odd);
  for (int64_t j = -kClose; j <= kClose; ++j) {
    if (j == 0 || j % common != 0) continue;
    const int64_t residue = ((j / common * of_power) % odd + odd) % odd;
    const int64_t first = residue + (kLeastMantissa - residue + odd - 1) / odd * odd;
    for (int64_t x = first; x < kEndOfMantissas; x += odd) f(x);
  }
}

// The quotient of mantissas in units of half its last place is X 2^k / C, k = 24 if X >= C, else
// 25; midpoints are the odd integers. A distance of j / C from one is the least possible. The value
// that quotient_by_products() rounds last is wrong by less than 5 / C: q is wrong by up to 1.5 last
// places, of which the rounded reciprocal leaves a 2^-24th (less than 3 / C), and the remainder may
// have a 25th bit to round off (2 / C).
int64_t wrong_quotients_by(int64_t divisor) {
  const SharedDivisor c = SharedDivisor::of(of_mantissa(divisor));
  int64_t wrong = 0;
  for (const int k : {24, 25})
    each_close_dividend(divisor, k, [&](int64_t mantissa) {
      if ((k == 24) != (mantissa >= divisor)) return;
      const float x = of_mantissa(mantissa);
      wrong += same(quotient_by_products(x, c), x / c.value) ? 0 : 1;
    });
  return wrong;
}

TEST(SharedDivisor, EveryDivisorDividesWhatIsHardToRound) {
  const int64_t step = long_tests() ? 1 : 61;
  int64_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
  for (int64_t divisor = kLeastMantissa; divisor < kEndOfMantissas; divisor += step)
    wrong += wrong_quotients_by(divisor);
  EXPECT_EQ(wrong, 0);
}

// The dividends above exist, and are hard: with a reciprocal that is wrong by one last place some
// quotients are wrong.
TEST(SharedDivisor, HardDividendsTellAWrongReciprocal) {
  int64_t wrong = 0, tried = 0;
  for (int64_t divisor = kLeastMantissa + 1; divisor < kEndOfMantissas; divisor += 10007) {
    SharedDivisor c = SharedDivisor::of(of_mantissa(divisor));
    c.reciprocal = std::nextafter(c.reciprocal, 2.0f);
    each_close_dividend(divisor, 24, [&](int64_t mantissa) {
      const float x = of_mantissa(mantissa);
      ++tried;
      wrong += same(quotient_by_products(x, c), x / c.value) ? 0 : 1;
    });
  }
  EXPECT_GT(tried, 1000);
  EXPECT_GT(wrong, 0);
}

// Corrections of the usual decays at early and late steps, and the ends of their range.
std::vector<SharedDivisor> corrections() {
  std::vector<SharedDivisor> all = {SharedDivisor::of(0x1p-24f), SharedDivisor::of(0x1.fffffep-1f)};
  for (const float beta : {0.0f, 0.5f, 0.9f, 0.95f, 0.98f, 0.999f, 0x1.fffffep-1f})
    for (const int64_t t : {1, 2, 3, 10, 137, 800, 100000})
      all.push_back(bias_correction(true, beta, t));
  return all;
}

int64_t wrong_on_gpu(SharedDivisor c, uint32_t first, uint32_t last) {
  int64_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
  for (int64_t bits = first; bits <= int64_t{last}; ++bits) {
    const float x = float_of(uint32_t(bits));
    wrong += same(quotient_on_gpu(x, c), x / c.value) ? 0 : 1;
  }
  return wrong;
}

TEST(SharedDivisor, EveryMantissaAtTheEndsOfTheRange) {
  const std::vector<SharedDivisor> all = corrections();
  for (size_t i = 0; i < all.size(); i += 8)
    for (const float from :
         {kLeastDividend / 2, kLeastDividend, 1.0f, kMostDividend / 2, kMostDividend}) {
      const uint32_t first = bits_of(from);
      EXPECT_EQ(wrong_on_gpu(all[i], first, first + (1u << 23) - 1), 0)
          << "by " << all[i].value << " from " << from;
    }
}

TEST(SharedDivisor, ZerosInfinitiesAndNumbersOutsideTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const SharedDivisor c : corrections())
    for (const float x : {0.0f, 0x1p-149f, 0x1.8p-140f, 0x1p-126f, 0x1.fffffep-101f, 0x1.8p100f,
                          0x1.fffffep127f, infinity})
      for (const float signed_x : {x, -x})
        EXPECT_EQ(bits_of(quotient_on_gpu(signed_x, c)), bits_of(signed_x / c.value))
            << signed_x << " / " << c.value;
  for (const SharedDivisor c : corrections()) EXPECT_TRUE(std::isnan(quotient_on_gpu(NAN, c)));
}

TEST(SharedDivisor, AllDividends) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  const std::vector<SharedDivisor> all = corrections();
  for (size_t i = 0; i < all.size(); i += 6)
    EXPECT_EQ(wrong_on_gpu(all[i], 0, 0xffffffffu), 0) << "by " << all[i].value;
}

}  // namespace
}  // namespace mpt
