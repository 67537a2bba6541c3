"""Bar charts of times, as text and as SVG."""
import html

WIDTH = 40  # characters of the longest bar
BAR, GAP, LEFT, RIGHT = 9, 8, 190, 620  # pixels of the SVG
COLOURS = ("#2f6db3", "#d98032", "#5a9e52", "#b0504b", "#8569a8", "#7a6a58", "#909090")


def text(groups):
    """Lines for groups [(label, [(name, ms)])]. Bars are scaled to the slowest of each group."""
    lines = []
    names = max((len(name) for _, bars in groups for name, _ in bars), default=0)
    labels = max((len(label) for label, _ in groups), default=0)
    for label, bars in groups:
        slowest = max((ms for _, ms in bars), default=1)
        for name, ms in bars:
            bar = "█" * max(1, round(WIDTH * ms / slowest))
            lines.append(f"{label:{labels}}  {name:{names}}  {bar} {ms:.3f}")
            label = ""
    return "\n".join(lines)


def element(kind, text_inside="", **attributes):
    words = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<{kind}{words}>{html.escape(text_inside)}</{kind}>"


def legend(names):
    parts = []
    for i, name in enumerate(names):
        x = 8 + i * 115
        parts.append(element("rect", x=x, y=24, width=BAR, height=BAR, fill=COLOURS[i % len(COLOURS)]))
        parts.append(element("text", name, x=x + BAR + 4, y=24 + BAR))
    return parts


def group_bars(label, bars, names, y):
    """The SVG elements of a group, starting at y."""
    slowest = max((ms for _, ms in bars), default=1)
    parts = [element("text", label, x=LEFT - 8, y=y + BAR * len(bars) / 2 + 4, text_anchor="end")]
    for name, ms in bars:
        width = round((RIGHT - LEFT) * ms / slowest, 1)
        colour = COLOURS[names.index(name) % len(COLOURS)]
        parts.append(element("rect", x=LEFT, y=y, width=width, height=BAR - 1, fill=colour))
        parts.append(element("text", f"{ms:.3f}", x=LEFT + width + 4, y=y + BAR - 1, font_size=9))
        y += BAR
    return parts


def svg(title, groups):
    """The same groups as an SVG document. Each name has one colour."""
    names = list(dict.fromkeys(name for _, bars in groups for name, _ in bars))
    parts = [element("text", title, x=8, y=14, font_weight="bold"), *legend(names)]
    y = 44
    for label, bars in groups:
        parts += group_bars(label, bars, names, y)
        y += BAR * len(bars) + GAP
    size = f'width="{RIGHT + 80}" height="{y}" viewBox="0 0 {RIGHT + 80} {y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return "\n".join([head, *parts, "</svg>"]) + "\n"
