// Which instruction sets this processor runs.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace paceline {

std::vector<const Kernels*> available_kernels();  // best first, the portable path last

}  // namespace paceline
