// A page of the failure gallery: what a replayed recording shows of each confirmed verdict, in Markdown.
// Everything on it comes from the recording; `fault` is the word of whoever injected it. Pure; any thread.
#pragma once

#include <string>

#include "c4d_master/recording.h"

namespace c4::cli {

// `title`: of the recording; `fault`: a sentence, empty when nobody says.
std::string GalleryText(const std::string& title, const std::string& fault, const c4d::Replay& replay);

}  // namespace c4::cli
