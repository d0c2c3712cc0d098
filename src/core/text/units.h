// Human-readable numbers with units.
#pragma once

#include <string>

namespace mpt {

std::string format_duration(double seconds);  // "42s", "3m05s", "2h07m"
std::string format_count(double count);       // "950", "1.5k", "12.3M", "4.00G"
std::string format_bytes(double bytes);       // "512 B", "1.5 MiB"

}  // namespace mpt
