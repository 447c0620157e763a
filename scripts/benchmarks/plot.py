"""Bars as SVG, without a library: one bar a leg, on a logarithmic axis since the ways differ by a hundred times. Imported."""
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 760, 130, 120, 26, 56
COLOURS = {"limit": "#9aa5b1", "ours": "#1f77b4", "peer": "#d98e04"}


def bars(title, subtitle, rows, unit):
    """rows: (name, kind, value), kind one of COLOURS."""
    values = [value for _, _, value in rows]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))
    span = WIDTH - LEFT - RIGHT
    height = TOP + ROW * len(rows) + 34

    def x(value):
        return LEFT + span * (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="16" font-weight="bold">{escape(title)}</text>',
        f'<text x="{LEFT}" y="42" fill="#555">{escape(subtitle)}</text>',
    ]
    bottom = TOP + ROW * len(rows)
    mark = low
    while mark <= high:
        out.append(f'<line x1="{x(mark):.1f}" y1="{TOP}" x2="{x(mark):.1f}" y2="{bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{x(mark):.1f}" y="{bottom + 18}" text-anchor="middle" fill="#555">{mark:g} {unit}</text>')
        mark *= 10
    for number, (name, kind, value) in enumerate(rows):
        y = TOP + ROW * number + 4
        out.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{max(x(value) - LEFT, 1):.1f}" height="18" fill="{COLOURS[kind]}"/>')
        out.append(f'<text x="{x(value) + 6:.1f}" y="{y + 14}">{value:.2f} {unit}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def copying(result):
    """The plot of the copy: seconds on the clock of every leg."""
    from copying import LIMITS, OURS

    kind = {**{leg: "limit" for leg in LIMITS}, **{leg: "ours" for leg in OURS}}
    names = {"bytes": "byte copy", "splice": "bare splice", "decode": "bare decode", **{leg: f"iceferry {leg}" for leg in OURS}}
    rows = [(names.get(leg, leg), kind.get(leg, "peer"), figures["wall_min_s"]) for leg, figures in result["legs"].items()]
    title = f"Copying {result['rows'] / 1e6:.0f} million rows of lineitem"
    subtitle = f"seconds, the least of {result['runs']} runs in turns; grey: limits, blue: iceferry, orange: others"
    return bars(title, subtitle, rows, "s")
