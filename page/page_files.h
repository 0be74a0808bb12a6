// The files of the operator's page, which the build puts into the program (page/embed.py). Without npm or
// without a network there are none, and what is served in their place says how to get them. Constant; any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "service/http_server.h"

namespace c4::page {

struct PageFile {
  std::string_view path;  // "/", "/assets/index-abc.js"
  std::string_view content_type;
  std::string_view tag;  // of its content
  size_t bytes = 0;      // of the content
  std::string_view gzip;
};

const std::vector<PageFile>& PageFiles();

// What a browser may do with a page of ours: nothing that comes from elsewhere, no frame around it.
std::vector<std::pair<std::string, std::string>> PageHeaders();

// 200, compressed where the client takes that; 304; 404.
service::HttpReply ServeFile(const std::vector<PageFile>& files, const service::HttpRequest& request);

// Of a reply that the client takes compressed, and that is worth it: so.
void Compress(const service::HttpRequest& request, service::HttpReply* reply);

}  // namespace c4::page
