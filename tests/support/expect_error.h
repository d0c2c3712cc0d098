// EXPECT_ERROR(statement, "part", "another"): expects that the statement throws Error with a
// message that contains every part.
#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include "core/check.h"

namespace mpt::test {

template <class F>
void expect_error(const char* text, F&& run, std::initializer_list<std::string> parts) {
  try {
    run();
  } catch (const Error& caught) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(caught.what()).find(part), std::string::npos)
          << text << "\nsays: " << caught.what() << "\nwithout: " << part;
    }
    return;
  }
  ADD_FAILURE() << text << " threw no Error";
}

}  // namespace mpt::test

#define EXPECT_ERROR(statement, ...) \
  ::mpt::test::expect_error(#statement, [&] { statement; }, {__VA_ARGS__})
