"""What a binary file is, by its first bytes."""

from __future__ import annotations

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (8, b"WEBP", "WebP"),
    (8, b"WAVE", "WAV"),
    (8, b"AVI ", "AVI"),
    (0, b"BM", "BMP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"\0\0\1\0", "ICO"),
    (0, b"%PDF-", "PDF"),
    (0, b"\x7fELF", "ELF"),
    (0, b"MZ", "Windows executable"),
    (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O"),
    (0, b"\xfe\xed\xfa\xcf", "Mach-O"),
    (0, b"\0asm", "WebAssembly"),
    (0, b"PK\x03\x04", "ZIP"),
    (0, b"PK\x05\x06", "ZIP"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (0, b"Rar!\x1a\x07", "RAR"),
    (257, b"ustar", "tar"),
    (0, b"SQLite format 3\0", "SQLite"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "OLE document"),
    (4, b"ftyp", "MP4"),
    (0, b"ID3", "MP3"),
    (0, b"\xff\xfb", "MP3"),
    (0, b"OggS", "Ogg"),
    (0, b"fLaC", "FLAC"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska"),
    (0, b"wOFF", "WOFF"),
    (0, b"wOF2", "WOFF2"),
    (0, b"\0\1\0\0\0", "TrueType"),
    (0, b"OTTO", "OpenType"),
    (0, b"PAR1", "Parquet"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"!<arch>\n", "ar archive"),
)


def name_of(head: bytes) -> str | None:
    """The format's usual name; None if it is none of the known. Ask only about what is no text: a text may begin
    with `BM` or `GIF89a`."""
    for offset, signature, name in _SIGNATURES:
        if head.startswith(signature, offset):
            return name
    return None
