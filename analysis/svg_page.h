// The frame of every drawing: an SVG page with its title. The page is dark where the reader's page is. Pure;
// any thread.
#pragma once

#include <string>

namespace c4::analysis {

inline constexpr int kSvgLeft = 60;  // of what is drawn; titles begin there too
inline constexpr int kSvgTop = 40;

std::string EscapedForSvg(const std::string& text);

// A picture of that size below its title, which is shown whole; `body` may use the room from y = 24 on.
// Attributes hold the colours of a light page; on a dark one those of classes take their place: paper, grid,
// cell, line, dot, hollow, limit, on-deep, and what `dark` adds.
std::string SvgPage(int width, int height, const std::string& title, const std::string& body,
                    const std::string& dark = "");

}  // namespace c4::analysis
