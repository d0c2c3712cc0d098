// Small floating-point formats, where this layer looks for them; backends below it decode operands with them.
#pragma once

#include "core/float_format.h"
