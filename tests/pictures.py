"""Small images of every kind, without a library."""

import struct
import zlib


def png(width: int = 6, height: int = 4, shade: int = 90) -> bytes:
    """A whole PNG of one colour; another shade is another file."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\0" + bytes([shade, 120, 60]) * width) * height
    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def jpeg_head(width: int, height: int) -> bytes:
    """The beginning of a JPEG: an application segment, a table, fill bytes, and the frame header."""
    segments = b"\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xc4\x00\x05\1\2\3" + b"\xff\xff\xff\xc2\x00\x11\x08"
    return b"\xff\xd8" + segments + struct.pack(">2H", height, width) + bytes(10)


def webp_heads(width: int, height: int) -> dict[str, bytes]:
    """The beginnings of WebP files, by the kind of their first chunk."""
    bits = (width - 1) | (height - 1) << 14
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunks = {
        "VP8 ": bytes(3) + b"\x9d\x01\x2a" + struct.pack("<2H", width, height),
        "VP8L": b"\x2f" + struct.pack("<I", bits),
        "VP8X": bytes(4) + sides,
    }
    return {kind: b"RIFF\0\0\0\0WEBP" + kind.encode() + bytes(4) + content for kind, content in chunks.items()}
