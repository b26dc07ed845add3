"""Small documents of many formats, in bytes, made here."""

import io
import struct
import zipfile

PNG_1X1 = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def archive(files: dict[str, str | bytes]) -> bytes:
    """A zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for name, content in files.items():
            target.writestr(name, content)
    return made.getvalue()


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF whose pages hold a line each."""
    count = len(pages)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(count)), count),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        content = b"BT /F1 12 Tf 20 100 Td (%b) Tj ET" % text.encode()
        resources = b"/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] %b /Contents %d 0 R >>" % (resources, 5 + 2 * number))
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content))
    objects.append(b"<< /Title (%b) >>" % title.encode())
    made = b"%PDF-1.4\n"
    places = []
    for number, each in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    info = b" /Info %d 0 R" % len(objects) if title else b""
    return made + b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R%b >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        table,
        len(objects) + 1,
        info,
        len(made),
    )


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def _office(main: str, kind: str, files: dict[str, str | bytes]) -> bytes:
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    types = f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType="{relations}"/>'
    types += f'<Override PartName="/{main}" ContentType="application/vnd.openxmlformats-officedocument.{kind}.main+xml"/>'
    if kind.startswith("spreadsheetml"):
        sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"
        types += f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{sheet}"/>'
    relation = f'<Relationship Id="r1" Type="{_RELATIONS}/officeDocument" Target="{main}"/>'
    return archive(
        {
            "[Content_Types].xml": f"{types}</Types>",
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relation}</Relationships>',
            **files,
        }
    )


def docx(heading: str, text: str) -> bytes:
    body = f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{heading}</w:t></w:r></w:p>'
    body += f"<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>{text}</w:t></w:r></w:p>"
    styles = f'<w:styles {_W}><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>'
    relation = f'<Relationship Id="r1" Type="{_RELATIONS}/styles" Target="styles.xml"/>'
    return _office(
        "word/document.xml",
        "wordprocessingml.document",
        {
            "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": styles,
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relation}</Relationships>',
        },
    )


def xlsx(rows: list[list[str | float]], *, name: str = "Sheet1") -> bytes:
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'

    def cell(place: str, value: str | float) -> str:
        if isinstance(value, str):
            return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
        return f'<c r="{place}"><v>{value}</v></c>'

    lines = "".join(
        f'<row r="{y}">{"".join(cell(f"{chr(64 + x)}{y}", value) for x, value in enumerate(row, 1))}</row>' for y, row in enumerate(rows, 1)
    )
    relation = f'<Relationship Id="r1" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/>'
    return _office(
        "xl/workbook.xml",
        "spreadsheetml.sheet",
        {
            "xl/workbook.xml": f'<workbook {space} xmlns:r="{_RELATIONS}"><sheets><sheet name="{name}" sheetId="1" r:id="r1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relation}</Relationships>',
            "xl/worksheets/sheet1.xml": f"<worksheet {space}><sheetData>{lines}</sheetData></worksheet>",
        },
    )


def xls(rows: list[list[str | float]]) -> bytes:
    """A worksheet of Excel 2: a bare stream of records."""
    made = struct.pack("<HHHH", 0x0009, 4, 0x0002, 0x0010)
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            if isinstance(value, str):
                text = value.encode("ascii")
                made += struct.pack("<HHHH3sB", 0x0004, 8 + len(text), y, x, bytes(3), len(text)) + text
            else:
                made += struct.pack("<HHHH3sd", 0x0003, 15, y, x, bytes(3), value)
    return made + struct.pack("<HH", 0x000A, 0)


def xlsb(rows: list[list[str | float]], *, name: str = "Sheet1") -> bytes:
    def record(kind: int, data: bytes = b"") -> bytes:
        number = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
        assert len(data) < 0x80
        return number + bytes([len(data)]) + data

    def text(value: str) -> bytes:
        return struct.pack("<I", len(value)) + value.encode("utf-16-le")

    size = struct.pack("<IIII", 0, len(rows) - 1, 0, max(map(len, rows)) - 1)
    sheet = record(129) + record(148, size) + record(145)
    strings: list[str] = []
    for y, row in enumerate(rows):
        sheet += record(0, struct.pack("<I", y) + bytes(13))
        for x, value in enumerate(row):
            place = struct.pack("<II", x, 0)
            if isinstance(value, str):
                sheet += record(7, place + struct.pack("<I", len(strings)))
                strings.append(value)
            else:
                sheet += record(5, place + struct.pack("<d", value))
    sheet += record(146) + record(130)
    book = record(131) + record(143) + record(156, struct.pack("<II", 0, 1) + text("r1") + text(name)) + record(144) + record(132)
    relation = f'<Relationship Id="r1" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.bin"/>'
    return archive(
        {
            "xl/workbook.bin": book,
            "xl/_rels/workbook.bin.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relation}</Relationships>',
            "xl/worksheets/sheet1.bin": sheet,
            "xl/sharedStrings.bin": record(159) + b"".join(record(19, bytes(1) + text(each)) for each in strings) + record(160),
        }
    )


_ODF = "urn:oasis:names:tc:opendocument:xmlns"


def _odf(kind: str, body: str) -> bytes:
    spaces = " ".join(f'xmlns:{name}="{_ODF}:{name}:1.0"' for name in ("office", "text", "table"))
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {spaces}><office:body>{body}</office:body></office:document-content>",
        }
    )


def odt(heading: str, text: str, *items: str) -> bytes:
    listed = "".join(f"<text:list-item><text:p>{item}</text:p></text:list-item>" for item in items)
    return _odf(
        "text",
        f'<office:text><text:h text:outline-level="2">{heading}</text:h><text:p>{text}</text:p><text:list>{listed}</text:list></office:text>',
    )


def ods(rows: list[list[str]], *, name: str = "Sheet1") -> bytes:
    def cell(value: str) -> str:
        return f"<table:table-cell><text:p>{value}</text:p></table:table-cell>"

    lines = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    rest = (
        '<table:table-row table:number-rows-repeated="1048000"><table:table-cell table:number-columns-repeated="1024"/></table:table-row>'
    )
    return _odf("spreadsheet", f'<office:spreadsheet><table:table table:name="{name}">{lines}{rest}</table:table></office:spreadsheet>')
