"""Spreadsheets: each sheet a heading and a table."""

import csv as csv_module
import datetime
import io

import bounds
from defusedxml import ElementTree

import fornada_sdk

MOST_COLUMNS = 16_384
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def xlsx(raw, *, plain, **_):
    import openpyxl

    bounds.archive(raw).close()
    book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
    for sheet in book.worksheets:
        # A sheet that says it is as large as one can be would have each of its rows filled up.
        sheet.reset_dimensions()
    return shown(((sheet.title, sheet.iter_rows(values_only=True)) for sheet in book.worksheets), plain)


def xls(raw, *, plain, **_):
    import xlrd

    book = xlrd.open_workbook(file_contents=raw, logfile=io.StringIO())

    def value(cell):
        if cell.ctype == xlrd.XL_CELL_DATE:
            return xlrd.xldate_as_datetime(cell.value, book.datemode)
        if cell.ctype == xlrd.XL_CELL_BOOLEAN:
            return bool(cell.value)
        return "" if cell.ctype == xlrd.XL_CELL_ERROR else cell.value

    sheets = ((sheet.name, ([value(cell) for cell in row] for row in sheet.get_rows())) for sheet in book.sheets())
    return shown(sheets, plain)


def xlsb(raw, *, plain, scratch, **_):
    from pyxlsb import open_workbook

    bounds.archive(raw).close()
    path = scratch / "book.xlsb"
    path.write_bytes(raw)
    try:
        with open_workbook(str(path)) as book:
            return shown(((name, xlsb_rows(book, name)) for name in book.sheets), plain)
    finally:
        path.unlink()


def xlsb_rows(book, name):
    with book.get_sheet(name) as sheet:
        for row in sheet.rows():
            yield [cell.v for cell in row]


def numbers(raw, *, plain, scratch, **_):
    from numbers_parser import Document

    bounds.archive(raw).close()
    path = scratch / "book.numbers"
    path.write_bytes(raw)
    try:
        document = Document(str(path))
        sheets = []
        for sheet in document.sheets:
            for table in sheet.tables:
                title = sheet.name if len(sheet.tables) == 1 else f"{sheet.name}: {table.name}"
                sheets.append((title, table.rows(values_only=True)))
        return shown(sheets, plain)
    finally:
        path.unlink()


def ods(raw, *, plain, **_):
    with bounds.archive(raw) as archive:
        root = ElementTree.fromstring(archive.read("content.xml"))
    return shown(((table.get(f"{_TABLE}name", ""), ods_rows(table)) for table in root.iter(f"{_TABLE}table")), plain)


def ods_rows(table):
    for row in table.iter(f"{_TABLE}table-row"):
        cells = []
        for cell in row:
            if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                continue
            text = " ".join("".join(paragraph.itertext()) for paragraph in cell.iter(f"{_TEXT}p"))
            again = int(cell.get(f"{_TABLE}number-columns-repeated", "1"))
            # An empty cell that fills the row to its end comes thousands of times.
            cells.extend([text] * min(again, MOST_COLUMNS))
            if len(cells) > bounds.MOST_CELLS:
                raise fornada_sdk.BadRequest(f"The file has more than {bounds.MOST_CELLS} cells")
        again = int(row.get(f"{_TABLE}number-rows-repeated", "1"))
        for _ in range(again if any(cells) else 1):
            yield cells


def csv(raw, *, plain, **_):
    text = decoded(raw)
    try:
        dialect = csv_module.Sniffer().sniff(text[:8192], ",;\t|")
    except csv_module.Error:
        dialect = csv_module.excel
    csv_module.field_size_limit(1_000_000)
    return shown([("", csv_module.reader(io.StringIO(text), dialect))], plain)


def decoded(raw):
    for encoding in ("utf-8-sig", "utf-16") if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    if b"\0" in raw:
        raise fornada_sdk.BadRequest("The file can't be read as csv")
    return raw.decode("cp1252", errors="replace")


def shown(sheets, plain):
    parts = []
    room = bounds.Room()
    for title, rows in sheets:
        table = filled(rows, room)
        if title:
            parts.append(title if plain else f"## {title}")
        if table:
            parts.append("\n".join("\t".join(row) for row in table) if plain else markdown_table(table))
    return "\n\n".join(parts)


def filled(rows, room):
    """The rows as texts, all of one length, without the empty ones at the end."""
    table, width, empty = [], 0, 0
    for row in rows:
        texts = [text_of(value) for value in row]
        while texts and not texts[-1]:
            texts.pop()
        if not texts:
            empty += 1
            if empty > bounds.MOST_ROWS:
                raise fornada_sdk.BadRequest(f"The file has more than {bounds.MOST_ROWS} rows")
            continue
        # One long row makes all of them long.
        before, width = width, max(width, len(texts))
        room.cells((width - before) * len(table) + width * (empty + 1))
        room.text(sum(map(len, texts)))
        table.extend([[] for _ in range(empty)])
        table.append(texts)
        empty = 0
    return [row + [""] * (width - len(row)) for row in table]


def markdown_table(table):
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def text_of(value):
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(sep=" ", timespec="seconds")
    return " ".join(str(value).split())
