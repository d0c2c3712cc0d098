// JSON parser events: a value, the opening of a container, a key, the closing of a container.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

namespace mpt {

// `J` is nlohmann::json or ordered_json. All return true to continue.
template <class J>
class JsonEvents : public nlohmann::json_sax<J> {
  using Sax = nlohmann::json_sax<J>;

 public:
  virtual bool value(J value) = 0;
  virtual bool open(J empty) = 0;  // an empty object or list
  virtual bool close() = 0;

  bool null() final { return value(nullptr); }
  bool boolean(bool of) final { return value(of); }
  bool number_integer(typename Sax::number_integer_t of) final { return value(of); }
  bool number_unsigned(typename Sax::number_unsigned_t of) final { return value(of); }
  bool number_float(typename Sax::number_float_t of, const std::string&) final { return value(of); }
  bool string(std::string& of) final { return value(std::move(of)); }
  bool binary(typename Sax::binary_t&) final { return false; }
  bool start_object(std::size_t) final { return open(J::object()); }
  bool start_array(std::size_t) final { return open(J::array()); }
  bool end_object() final { return close(); }
  bool end_array() final { return close(); }
};

}  // namespace mpt
