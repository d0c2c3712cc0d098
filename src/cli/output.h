// Standard output: where the results of verbs go.
#pragma once

#include <string_view>

namespace mpt {

// At once. False if the reader has gone (`| head`), which is no failure: there is nobody to write for. Throws
// Error if the text cannot be written for another reason, such as a full disk.
bool write_output(std::string_view text);

// To be called at the end, for what was printed through std::cout.
void finish_output();

}  // namespace mpt
