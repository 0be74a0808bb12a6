#include "page/page_files.h"

#include <algorithm>
#include <zlib.h>

#include "service/text.h"

namespace c4::page {
namespace {

constexpr size_t kWorthCompressing = 1400;  // about what a packet holds
constexpr int kGzip = 16 + MAX_WBITS;       // zlib's way to say: with gzip's head

constexpr char kNoPage[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>C4</title>"
    "<h1>This c4 was built without its page</h1>"
    "<p>The page is built by npm. Where that is installed and reaches its registry, <code>make page</code> "
    "and "
    "then <code>make</code> put it into the program (docs/page.md).</p>"
    "<p>Everything that it would show can be had as JSON: <a href=\"api/v1/fleet\">api/v1/fleet</a>; and in "
    "a "
    "terminal: <code>c4 jobs</code>, <code>c4 verdicts</code>, <code>c4 matrix</code>.</p></html>\n";

bool TakesGzip(const service::HttpRequest& request) {
  return request.accept_encoding.find("gzip") != std::string::npos;
}

std::string Gunzip(std::string_view packed, size_t bytes) {
  std::string content(bytes, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, kGzip) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // zlib does not write there
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(content.data());
  stream.avail_out = static_cast<uInt>(content.size());
  const int result = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  return result == Z_STREAM_END ? content : std::string();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PageHeaders() {
  return {{"Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src "
           "'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cross-Origin-Opener-Policy", "same-origin"}};
}

service::HttpReply ServeFile(const std::vector<PageFile>& files, const service::HttpRequest& request) {
  service::HttpReply reply;
  reply.headers = PageHeaders();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const PageFile& entry) { return entry.path == request.path; });
  if (file == files.end()) {
    reply.status = request.path == "/" ? 200 : 404;
    reply.content_type = request.path == "/" ? "text/html; charset=utf-8" : "text/plain; charset=utf-8";
    reply.body = request.path == "/" ? kNoPage : "there is no such file\n";
    return reply;
  }
  const std::string tag = service::Concat("\"", file->tag, "\"");
  reply.content_type = std::string(file->content_type);
  reply.headers.emplace_back("ETag", tag);
  reply.headers.emplace_back("Vary", "Accept-Encoding");
  // An asset's name changes with its content; the page itself is asked for anew.
  reply.headers.emplace_back("Cache-Control",
                             request.path == "/" ? "no-cache" : "public, max-age=31536000, immutable");
  if (request.if_none_match == tag) {
    reply.status = 304;
    return reply;
  }
  if (TakesGzip(request)) {
    reply.headers.emplace_back("Content-Encoding", "gzip");
    reply.body = std::string(file->gzip);
  } else {
    reply.body = Gunzip(file->gzip, file->bytes);
  }
  return reply;
}

void Compress(const service::HttpRequest& request, service::HttpReply* reply) {
  reply->headers.emplace_back("Vary", "Accept-Encoding");
  if (!TakesGzip(request) || reply->body.size() < kWorthCompressing) return;
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) return;
  std::string packed(deflateBound(&stream, reply->body.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(reply->body.data());
  stream.avail_in = static_cast<uInt>(reply->body.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return;
  reply->body = std::move(packed);
  reply->headers.emplace_back("Content-Encoding", "gzip");
}

}  // namespace c4::page
