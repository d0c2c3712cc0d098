// Functions called by main, which are in a shared library if the program is packaged.
#pragma once

#define MPT_EXPORTED [[gnu::visibility("default")]]
