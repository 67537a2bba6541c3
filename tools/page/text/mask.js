// The picture of the mask: zoom, and what is known of the score that is pointed at.
const SVG = "http://www.w3.org/2000/svg";
const EMPTY = 0, PARTIAL = 1, FULL = 2;
const KINDS = {e: EMPTY, p: PARTIAL, f: FULL};
const NAMES = ["empty", "partial", "full"];
const FINEST = 26;       // pixels of a score at the highest zoom
const MOST_SCORES = 3e5; // that are evaluated for one view

// "120e3f" -> a number for each cell.
function cellsOf(runs, count) {
  const cells = new Uint8Array(count);
  let at = 0;
  for (const [, number, letter] of runs.matchAll(/(\d+)([epf])/g)) {
    cells.fill(KINDS[letter], at, at + Number(number));
    at += Number(number);
  }
  return cells;
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

class Mask {
  constructor(data) {
    Object.assign(this, data);
    this.evaluator = new Conditions(data);
    this.panels = data.panels.map((panel) => ({
      ...panel,
      map: cellsOf(panel.map, panel.cells[0] * panel.cells[1]),
      width: panel.tile[0] * panel.cells[1],
      height: panel.tile[1] * panel.cells[0],
    }));
    this.areScores = data.cell[0] === 1 && data.cell[1] === 1;
  }

  block(panel, row, column) {
    const [rows, columns] = this.cell;
    return panel.map[Math.floor(row / rows) * panel.cells[1] + Math.floor(column / columns)];
  }

  results(panel, row, column) {
    return this.evaluator.at({batch: panel.batch, head: panel.head, row, column});
  }

  // true or false, or undefined where the page does not know. The picture is never contradicted.
  isVisible(panel, row, column) {
    const block = this.block(panel, row, column);
    if (block !== PARTIAL) return block === FULL;
    const results = this.results(panel, row, column);
    if (results.includes(0)) return false;
    return results.includes(undefined) ? undefined : true;
  }
}

class Picture {
  constructor(mask, host) {
    this.mask = mask;
    this.host = host;
    this.svg = host.querySelector("svg");
    this.svg.querySelector("title")?.remove();  // browsers show it beside the tooltip
    this.svg.setAttribute("aria-hidden", "true");
    const [, , width, height] = this.svg.getAttribute("viewBox").split(" ").map(Number);
    this.whole = {x: 0, y: 0, width, height};
    this.view = {...this.whole};
    host.style.maxWidth = `${width}px`;
    this.canvas = host.appendChild(document.createElement("canvas"));
    this.over = host.appendChild(document.createElementNS(SVG, "svg"));  // above the canvas
    this.over.setAttribute("class", "over");
    this.over.setAttribute("aria-hidden", "true");
    this.cross = this.over.appendChild(document.createElementNS(SVG, "path"));
    this.cross.setAttribute("class", "cross");
    this.tooltip = document.getElementById("tooltip");
    document.getElementById("tools").hidden = false;
    this.conditions = [...document.querySelectorAll("#conditions li")];
    this.place = null;
    this.listen();
    this.draw();
  }

  // Pixels of the page for one unit of the picture.
  get scale() { return this.svg.getBoundingClientRect().width / this.view.width; }
  get zoom() { return this.whole.width / this.view.width; }

  // A score never is larger than FINEST.
  get mostZoom() {
    const {tile} = this.mask.panels[0];
    const [rows, columns] = this.mask.cell;
    return Math.max(4, FINEST / Math.min(tile[0] / columns, tile[1] / rows));
  }

  listen() {
    const host = this.host;
    host.addEventListener("pointermove", (event) => this.moved(event));
    host.addEventListener("pointerleave", () => { if (!this.dragged) this.leave(); });
    host.addEventListener("pointerdown", (event) => this.pressed(event));
    host.addEventListener("pointerup", () => { this.dragged = null; });
    host.addEventListener("pointercancel", () => { this.dragged = null; });
    host.addEventListener("blur", () => this.leave());
    host.addEventListener("keydown", (event) => this.key(event));
    host.addEventListener("dblclick", (event) => this.zoomBy(event.shiftKey ? 1 / 4 : 4, event));
    host.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(2 ** (-event.deltaY / 240), event);
    }, {passive: false});
    document.getElementById("zoom-in").addEventListener("click", () => this.zoomBy(2));
    document.getElementById("zoom-out").addEventListener("click", () => this.zoomBy(1 / 2));
    document.getElementById("zoom-all").addEventListener("click", () => this.zoomBy(0));
    new ResizeObserver(() => this.draw()).observe(this.svg);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      matchMedia(query).addEventListener("change", () => this.draw());
    }
  }

  // The point of the picture under the pointer; without an event, that of the score, or the middle.
  point(event) {
    if (!event && this.place) return this.middle(this.place);
    const {x, y, width, height} = this.view;
    if (!event) return this.zoom === 1 ? this.middleOfPanel() : {x: x + width / 2, y: y + height / 2};
    const box = this.svg.getBoundingClientRect();
    return {x: x + (event.clientX - box.left) / this.scale, y: y + (event.clientY - box.top) / this.scale};
  }

  middleOfPanel() {
    const {x, y, width, height} = this.mask.panels[0];
    return {x: x + width / 2, y: y + height / 2};
  }

  // Extents of a score in the picture.
  score(panel) {
    return {width: panel.tile[0] / this.mask.cell[1], height: panel.tile[1] / this.mask.cell[0]};
  }

  middle({panel, row, column}) {
    const {width, height} = this.score(panel);
    return {x: panel.x + (column + 0.5) * width, y: panel.y + (row + 0.5) * height};
  }

  find({x, y}) {
    const panel = this.mask.panels.find((each) => x >= each.x && x < each.x + each.width &&
                                                  y >= each.y && y < each.y + each.height);
    if (!panel) return null;
    const {width, height} = this.score(panel);
    const row = Math.floor((y - panel.y) / height), column = Math.floor((x - panel.x) / width);
    // The last block may be drawn larger than it is.
    if (row >= this.mask.rows || column >= this.mask.columns) return null;
    return {panel, row, column};
  }

  moved(event) {
    if (this.dragged) {
      this.view.x = this.dragged.x - (event.clientX - this.dragged.clientX) / this.scale;
      this.view.y = this.dragged.y - (event.clientY - this.dragged.clientY) / this.scale;
      this.draw();
    }
    this.show(this.find(this.point(event)), event);
  }

  pressed(event) {
    this.show(this.find(this.point(event)), event);
    if (this.zoom === 1) return;
    this.host.setPointerCapture(event.pointerId);
    this.dragged = {x: this.view.x, y: this.view.y, clientX: event.clientX, clientY: event.clientY};
  }

  leave() { this.show(null); }

  key(event) {
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (event.key in steps) this.step(...steps[event.key], event.shiftKey);
    else if (event.key === "+" || event.key === "=") this.zoomBy(2);
    else if (event.key === "-") this.zoomBy(1 / 2);
    else if (event.key === "0") this.zoomBy(0);
    else if (event.key === "Escape") this.leave();
    else return;
    event.preventDefault();
  }

  // From cell to cell, or with Shift a sixteenth of the scores; zoomed in, from score to score.
  step(down, right, far) {
    const {rows, columns, cell} = this.mask;
    const {panel, row, column} = this.place ?? this.find(this.point()) ??
                                 {panel: this.mask.panels[0], row: 0, column: 0};
    const fine = this.score(panel).width * this.scale >= 2;
    const by = (size, block) => (far ? Math.ceil(size / 16) : fine ? 1 : block);
    const place = {panel, row: clamp(row + down * by(rows, cell[0]), 0, rows - 1),
                   column: clamp(column + right * by(columns, cell[1]), 0, columns - 1)};
    this.reveal(this.middle(place));
    this.show(place);
  }

  reveal({x, y}) {
    const {view} = this;
    if (x < view.x || x > view.x + view.width) view.x = x - view.width / 2;
    if (y < view.y || y > view.y + view.height) view.y = y - view.height / 2;
    this.draw();
  }

  // By 0: everything.
  zoomBy(factor, event) {
    const zoom = factor === 0 ? 1 : clamp(this.zoom * factor, 1, this.mostZoom);
    const {x, y} = this.point(event);
    const {view, whole} = this;
    const at = {x: (x - view.x) / view.width, y: (y - view.y) / view.height};
    const inside = !event && (at.x < 0 || at.x > 1 || at.y < 0 || at.y > 1 || this.zoom === 1);
    view.width = whole.width / zoom;
    view.height = whole.height / zoom;
    view.x = x - view.width * (inside ? 0.5 : at.x);
    view.y = y - view.height * (inside ? 0.5 : at.y);
    this.draw();
  }

  draw() {
    const {view, whole} = this;
    view.x = clamp(view.x, 0, whole.width - view.width);
    view.y = clamp(view.y, 0, whole.height - view.height);
    for (const svg of [this.svg, this.over]) {
      svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    }
    this.host.classList.toggle("zoomed", this.zoom > 1);
    const zoom = this.zoom;
    document.getElementById("zoom").textContent = this.zoomText();
    document.getElementById("zoom-out").disabled = zoom <= 1;
    document.getElementById("zoom-all").disabled = zoom <= 1;
    document.getElementById("zoom-in").disabled = zoom >= this.mostZoom * 0.999;
    this.drawScores();
    this.drawCross();
  }

  // "8x: q_idx 0 to 1023, kv_idx 512 to 1535", of the panel in the middle of the view.
  zoomText() {
    const {view, zoom} = this;
    const text = `${zoom < 10 ? Math.round(10 * zoom) / 10 : Math.round(zoom)}\u00d7`;
    const place = zoom > 1 && this.find({x: view.x + view.width / 2, y: view.y + view.height / 2});
    if (!place) return text;
    const {top, bottom, left, right} = this.inView(place.panel);
    return `${text}: ${this.mask.row_name} ${top} to ${bottom - 1}, kv_idx ${left} to ${right - 1}`;
  }

  // The scores of a panel that can be seen: from the first to one past the last.
  inView(panel) {
    const {view, mask} = this;
    const {width, height} = this.score(panel);
    const within = (from, extent, start, size, count) => [
      clamp(Math.floor((from - start) / size), 0, count),
      clamp(Math.ceil((from + extent - start) / size), 0, count),
    ];
    const [top, bottom] = within(view.y, view.height, panel.y, height, mask.rows);
    const [left, right] = within(view.x, view.width, panel.x, width, mask.columns);
    return {top, bottom, left, right};
  }

  // The scores of partial blocks, where they are large enough to be seen.
  drawScores() {
    const box = this.svg.getBoundingClientRect();
    const sharp = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(box.width * sharp);
    this.canvas.height = Math.round(box.height * sharp);
    this.canvas.style.width = `${box.width}px`;
    this.canvas.style.height = `${box.height}px`;
    this.drawn = 0;
    if (this.mask.areScores || this.canvas.width === 0) return;
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(`--ink-${name}`);
    const inks = {visible: ink("full"), hidden: ink("empty"), paper: ink("paper")};
    pen.scale(sharp, sharp);
    pen.scale(this.scale, this.scale);
    pen.translate(-this.view.x, -this.view.y);
    for (const panel of this.mask.panels) this.drawPanel(panel, pen, inks);
  }

  drawPanel(panel, pen, inks) {
    const {width, height} = this.score(panel);
    if (Math.min(width, height) * this.scale < 1.5) return;
    const {mask} = this;
    const {top, bottom, left, right} = this.inView(panel);
    if ((bottom - top) * (right - left) > MOST_SCORES) return;
    // Told apart by lines where they are large; else without gaps.
    const gap = (Math.min(width, height) * this.scale >= 8 ? 1 : -0.7) / this.scale;
    const fill = (ink, column, row, less) => {
      pen.fillStyle = ink;
      pen.fillRect(panel.x + column * width, panel.y + row * height, width - less, height - less);
    };
    for (let row = top; row < bottom; ++row) {
      for (let column = left; column < right; ++column) {
        if (mask.block(panel, row, column) !== PARTIAL) continue;
        const visible = mask.isVisible(panel, row, column);
        if (visible === undefined) continue;
        if (gap > 0) fill(inks.paper, column, row, 0);
        fill(visible ? inks.visible : inks.hidden, column, row, gap);
        ++this.drawn;
      }
    }
  }

  drawCross() {
    if (!this.place) {
      this.cross.setAttribute("d", "");
      return;
    }
    const {panel} = this.place;
    const {x, y} = this.middle(this.place);
    const size = this.score(panel);
    const least = 5 / this.scale;
    const width = Math.max(size.width, least), height = Math.max(size.height, least);
    this.cross.setAttribute("d", `M${panel.x} ${y}H${x - width / 2}M${x + width / 2} ${y}H${panel.x + panel.width}` +
      `M${x} ${panel.y}V${y - height / 2}M${x} ${y + height / 2}V${panel.y + panel.height}` +
      `M${x - width / 2} ${y - height / 2}h${width}v${height}h${-width}z`);
  }

  show(place, event) {
    this.place = place;
    this.drawCross();
    this.tooltip.hidden = !place;
    this.conditions.forEach((item) => item.classList.remove("holds", "fails"));
    if (!place) return;
    const {panel, row, column} = place;
    const results = this.mask.results(panel, row, column);
    this.conditions.forEach((item, i) => {
      if (results[i] !== undefined) item.classList.add(results[i] ? "holds" : "fails");
    });
    this.tooltip.replaceChildren(...this.lines(place, results).map(([text, kind]) => {
      const line = document.createElement("div");
      line.textContent = text;
      line.className = kind;
      return line;
    }));
    this.put(event ? {x: event.clientX, y: event.clientY} : this.onPage(this.middle(place)));
  }

  // [text, class] of the tooltip.
  lines({panel, row, column}, results) {
    const {mask} = this;
    const lines = [[`${mask.row_name} ${row}, kv_idx ${column}`, "at"]];
    if (panel.title) lines.push([panel.title, "of"]);
    const visible = mask.isVisible(panel, row, column);
    const text = {true: "visible", false: "hidden", undefined: "visible or hidden: not known here"};
    lines.push([text[visible], visible ? "visible" : "hidden"]);
    mask.conditions.forEach((condition, i) => {
      if (results[i] !== 0) return;
      const line = condition.line ? ` (line ${condition.line})` : "";
      lines.push([`by ${condition.text}${line}`, "by"]);
    });
    if (!mask.areScores) {
      const [rows, columns] = mask.cell;
      const block = NAMES[mask.block(panel, row, column)];
      lines.push([`${block} block ${Math.floor(row / rows)}, ${Math.floor(column / columns)} of ${rows} \u00d7 ${columns}`, "of"]);
    }
    return lines;
  }

  onPage({x, y}) {
    const box = this.svg.getBoundingClientRect();
    return {x: box.left + (x - this.view.x) * this.scale, y: box.top + (y - this.view.y) * this.scale};
  }

  // Beside the point, inside the window.
  put({x, y}) {
    const {width, height} = this.tooltip.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    const left = x + 16 + width > room ? x - 16 - width : x + 16;
    const top = y + 16 + height > window.innerHeight ? y - 16 - height : y + 16;
    this.tooltip.style.left = `${clamp(left, 4, Math.max(4, room - width - 4))}px`;
    this.tooltip.style.top = `${Math.max(4, top)}px`;
  }
}
