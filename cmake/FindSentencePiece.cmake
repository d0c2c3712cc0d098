# Finds SentencePiece (encoder and trainer); Debian ships it without a CMake package. Defines SentencePiece::SentencePiece
# and SentencePiece_VERSION, "of unknown version" where its pkg-config file is not beside it.

find_path(SentencePiece_INCLUDE_DIR sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY sentencepiece_train)
set(SentencePiece_VERSION "of unknown version")
get_filename_component(_sentencepiece_directory "${SentencePiece_LIBRARY}" DIRECTORY)
if(EXISTS "${_sentencepiece_directory}/pkgconfig/sentencepiece.pc")
  file(STRINGS "${_sentencepiece_directory}/pkgconfig/sentencepiece.pc" _sentencepiece_line REGEX "^Version: ")
  string(REPLACE "Version: " "" SentencePiece_VERSION "${_sentencepiece_line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece
  REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libsentencepiece-dev")
if(SentencePiece_FOUND AND NOT TARGET SentencePiece::SentencePiece)
  add_library(SentencePiece::SentencePiece UNKNOWN IMPORTED)
  set_target_properties(SentencePiece::SentencePiece PROPERTIES IMPORTED_LOCATION ${SentencePiece_TRAIN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SentencePiece_INCLUDE_DIR} INTERFACE_LINK_LIBRARIES ${SentencePiece_LIBRARY})
endif()
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)
