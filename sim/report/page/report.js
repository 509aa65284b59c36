"use strict";
// Draws a run on a canvas. Start reading at draw; the data is described in sim/report/model.go.
(() => {
  const byID = (id) => document.getElementById(id);
  const run = JSON.parse(byID("run").textContent);
  const stateNames = JSON.parse(byID("states").textContent); // of the states from 1 on
  const rows = run.rows, count = rows.at.length;
  const text = (n) => run.strings[n];
  const kindNames = ["event", "effect", "fact", "plan"];
  const kindMarks = ["←", "→", "·", "!"];
  const stateColours = ["", "waiting", "running", "ready", "terminating", "ended", "failed", "unknown"];

  // ---- The data, arranged for drawing ----

  const lanes = run.lanes;
  for (const lane of lanes) { lane.rows = []; lane.ops = []; }
  for (let i = 0; i < count; i++) lanes[rows.lane[i]].rows.push(i);
  const ledTo = new Map(); // from a row to the facts whose origin it is
  for (let i = 0; i < count; i++) {
    const origin = rows.origin[i];
    if (origin < 0) continue;
    if (!ledTo.has(origin)) ledTo.set(origin, []);
    ledTo.get(origin).push(i);
  }
  // The effects of a step are the rows after its event that have its number.
  const eventRow = new Map();
  for (let i = 0; i < count; i++) {
    if (rows.kind[i] === 0) eventRow.set(rows.number[i], i);
  }
  const ops = run.ops.map(([effect, id, reached, end, answer]) =>
    ({ effect, id, reached, end, answer, level: 0, from: rows.at[effect] }));
  const opLevels = 3;
  for (const op of ops) lanes[rows.lane[op.effect]].ops.push(op);
  for (const lane of lanes) {
    const free = new Array(opLevels).fill(-1);
    for (const op of lane.ops) {
      let level = free.findIndex((end) => end <= op.from);
      if (level < 0) level = free.indexOf(Math.min(...free));
      op.level = level;
      free[level] = Math.max(free[level], op.end);
    }
  }
  const barKinds = { fault: "fault", agent: "agent", agentDown: "down", machineDown: "down",
    runtimeDown: "down" };
  const barNames = { fault: "fault", agent: "agent", agentDown: "agent killed",
    machineDown: "machine down", runtimeDown: "runtime down" };
  const processes = run.bars.filter((b) => b.kind !== "fault").sort((a, b) => a.from - b.from);
  const faults = run.bars.filter((b) => b.kind === "fault").sort((a, b) => a.from - b.from);
  const faultLevels = (() => {
    const free = [];
    for (const bar of faults) {
      let level = free.findIndex((end) => end <= bar.from);
      if (level < 0) level = free.length < 8 ? free.length : free.indexOf(Math.min(...free));
      bar.level = level;
      free[level] = Math.max(free[level] || 0, bar.to);
    }
    return free.length;
  })();
  const planRows = [];
  for (let i = 0; i < count; i++) if (rows.kind[i] === 3) planRows.push(i);

  // ---- The view ----

  const labelWidth = 170, axisHeight = 24, planHeight = 12, barHeight = 15, opHeight = 4;
  const topHeight = axisHeight + planHeight + (faultLevels + 1) * barHeight + 6;
  const heightOf = (lane) => (lane.pod < 0 ? 36 : 19);
  const view = { from: 0, to: run.end, containers: true, selected: -1, hits: [], hit: -1 };
  const isHit = new Uint8Array(count);
  let shown = []; // lanes with their places
  const scroller = byID("scroller"), canvas = byID("canvas"), pen = canvas.getContext("2d");
  let width = 0, height = 0, colours = {};
  const scale = () => (width - labelWidth) / (view.to - view.from);
  const x = (at) => labelWidth + (at - view.from) * scale();
  const timeAt = (px) => view.from + (px - labelWidth) / scale();

  function arrange() {
    shown = [];
    let y = 0;
    lanes.forEach((lane, number) => {
      if (lane.pod >= 0 && !view.containers) return;
      shown.push({ lane, number, y, height: heightOf(lane) });
      y += heightOf(lane);
    });
    byID("height").style.height = Math.max(0, y + topHeight + 8 - height) + "px";
    byID("containers").setAttribute("aria-pressed", String(view.containers));
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    width = scroller.clientWidth;
    height = scroller.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    arrange();
    redraw();
  }

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    colours = {};
    for (const name of ["back", "panel", "line", "text", "soft", "accent", "band", "waiting", "running",
      "ready", "terminating", "ended", "failed", "unknown", "event", "effect", "fact", "plan", "op",
      "queued", "past", "onState", "fault", "agent", "down", "shade", "hit"]) {
      colours[name] = style.getPropertyValue("--" + name).trim();
    }
  }

  let isDue = false;
  function redraw() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; draw(); });
  }

  // ---- Drawing ----

  const font = "12px system-ui, sans-serif", small = "11px system-ui, sans-serif";

  function formatTime(at, step) {
    const sign = at < 0 ? "-" : "", us = Math.abs(at);
    const minutes = Math.floor(us / 6e7), seconds = (us % 6e7) / 1e6;
    const digits = step >= 1e6 ? 0 : step >= 1e3 ? 3 : 6;
    const fixed = seconds.toFixed(digits);
    return sign + minutes + ":" + (seconds < 10 ? "0" : "") + fixed;
  }
  function formatLength(us) {
    if (us < 1e3) return us + " µs";
    if (us < 1e6) return +(us / 1e3).toFixed(3) + " ms";
    if (us < 6e7) return +(us / 1e6).toFixed(3) + " s";
    return Math.floor(us / 6e7) + " min " + +((us % 6e7) / 1e6).toFixed(3) + " s";
  }
  // tickStep is a round number of microseconds between two labels of the axis.
  function tickStep() {
    const least = (view.to - view.from) / Math.max(2, (width - labelWidth) / 110);
    for (let unit = 1; unit < 1e6; unit *= 10) {
      for (const n of [1, 2, 5]) if (n * unit >= least) return n * unit;
    }
    for (const s of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600]) {
      if (s * 1e6 >= least) return s * 1e6;
    }
    return Math.ceil(least / 36e8) * 36e8;
  }

  // firstAt returns the first of the rows in a list that is not before a time.
  function firstAt(list, at) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows.at[list[middle]] < at) low = middle + 1; else high = middle;
    }
    return low;
  }

  function label(words, left, right, y, colour) {
    const room = right - left - 6;
    if (room < 18 || !words) return;
    let fits = words;
    if (pen.measureText(fits).width > room) {
      const each = pen.measureText("n").width;
      fits = words.slice(0, Math.max(1, Math.floor(room / each) - 1)) + "…";
      if (pen.measureText(fits).width > room + 4) return;
    }
    pen.fillStyle = colour;
    pen.fillText(fits, left + 4, y);
  }

  function draw() {
    const started = performance.now();
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = colours.back;
    pen.fillRect(0, 0, width, height);
    pen.textBaseline = "middle";
    const step = tickStep();
    pen.save();
    pen.beginPath();
    pen.rect(0, topHeight, width, height - topHeight);
    pen.clip();
    drawShades(step);
    const scrolled = scroller.scrollTop;
    for (const place of shown) {
      const y = topHeight + place.y - scrolled;
      if (y + place.height < topHeight || y > height) continue;
      drawLane(place, y);
    }
    drawRelations(scrolled);
    pen.restore();
    drawTop(step);
    drawVerdict();
    drawRange();
    api.lastDraw = performance.now() - started;
    api.draws++;
  }

  // drawShades draws what crosses all lanes: the grid, times of trouble, and the end of the faults.
  function drawShades(step) {
    pen.fillStyle = colours.line;
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      if (x(at) >= labelWidth) pen.fillRect(Math.round(x(at)), topHeight, 0.5, height);
    }
    pen.fillStyle = colours.shade;
    for (const bar of processes) {
      if (bar.kind === "agent" || bar.to < view.from || bar.from > view.to) continue;
      const left = Math.max(labelWidth, x(bar.from));
      pen.fillRect(left, topHeight, Math.max(1, Math.min(width, x(bar.to)) - left), height);
    }
  }

  function drawLane(place, y) {
    const { lane, number } = place, isPod = lane.pod < 0;
    if (isPod) {
      pen.fillStyle = colours.line;
      pen.fillRect(0, y, width, 1);
    }
    pen.save();
    pen.beginPath();
    pen.rect(labelWidth, y, width - labelWidth, place.height);
    pen.clip();
    drawSpans(lane, y + 3, isPod ? 13 : 11);
    drawTicks(lane, isPod ? y + 18 : y + 15, isPod ? 5 : 3);
    if (isPod) drawOps(lane, y + 24);
    pen.restore();
    pen.font = isPod ? "600 " + font : small;
    label(lane.name, isPod ? 6 : 20, labelWidth - 2, y + (isPod ? 10 : 9),
      isPod ? colours.text : colours.soft);
    if (isPod && number > 0 && lane.uid && lane.uid !== lane.name) {
      pen.font = small;
      label(lane.uid, 6, labelWidth - 2, y + 25, colours.soft);
    }
  }

  // drawSpans draws states. Those that are shorter than a pixel are merged with what was drawn there:
  // of them only a failure replaces its neighbour.
  function drawSpans(lane, y, tall) {
    pen.font = small;
    let end = -1;
    for (const [from, to, state, words] of lane.spans) {
      if (to < view.from) continue;
      if (from > view.to) break;
      const left = Math.max(labelWidth - 2, x(from)), right = Math.min(width + 2, x(to));
      if (right <= end + 0.5 && stateColours[state] !== "failed") continue;
      pen.fillStyle = colours[stateColours[state]];
      const isEnded = state === 5 || state === 6, wide = right - left - (right - left > 4 ? 1 : 0);
      const colour = pen.fillStyle;
      if (isEnded) pen.fillStyle = colours.past;
      pen.fillRect(left, y, Math.max(1, wide), tall);
      if (isEnded) {
        pen.fillStyle = colour;
        pen.fillRect(left, y, Math.max(1, Math.min(3, wide)), tall);
        if (wide > 3) pen.fillRect(left, y + tall - 2, wide, 2);
      }
      end = Math.max(right, left + 1);
      const detail = text(words);
      const shownText = isEnded && detail ? detail :
        stateNames[state - 1] + (detail ? " · " + detail : "");
      label(shownText, left, right, y + tall / 2 + 0.5,
        isEnded || state === 1 ? colours.text : colours.onState);
    }
  }

  // drawTicks draws rows, one for each pixel: matches of the search hide others.
  function drawTicks(lane, y, tall) {
    const list = lane.rows;
    const paths = new Map();
    let column = -1, drawn = -1;
    const factor = scale();
    for (let i = firstAt(list, view.from); i < list.length; i++) {
      const row = list[i], at = rows.at[row];
      if (at > view.to) break;
      const px = Math.floor(labelWidth + (at - view.from) * factor);
      const rank = isHit[row] ? 9 : rows.kind[row];
      if (px === column && rank <= drawn) continue;
      drawn = px === column ? Math.max(drawn, rank) : rank;
      column = px;
      let path = paths.get(rank);
      if (!path) paths.set(rank, path = new Path2D());
      if (rank === 9) path.rect(px - 1, y - 3, 3, tall + 5); else path.rect(px, y, 1.4, tall);
    }
    for (const rank of [0, 1, 2, 3, 9]) {
      if (!paths.has(rank)) continue;
      pen.fillStyle = rank === 9 ? colours.hit : colours[kindNames[rank]];
      pen.fill(paths.get(rank));
    }
  }

  // drawOps draws operations in flight: pale while they wait for others, then until their answer.
  function drawOps(lane, y) {
    const ends = new Array(opLevels).fill(-1), factor = scale();
    const busy = new Path2D(), queued = new Path2D(), lost = new Path2D();
    for (const op of lane.ops) {
      if (op.from > view.to) break;
      if (op.end < view.from) continue;
      const left = Math.max(labelWidth, labelWidth + (op.from - view.from) * factor);
      const right = Math.min(width, Math.max(left + 1, labelWidth + (op.end - view.from) * factor));
      if (right <= ends[op.level] + 0.5) continue;
      ends[op.level] = right;
      const top = y + op.level * opHeight;
      const reached = op.reached < 0 ? right :
        Math.min(right, Math.max(left, labelWidth + (op.reached - view.from) * factor));
      if (reached > left) queued.rect(left, top, reached - left, opHeight - 1);
      (op.answer < 0 ? lost : busy).rect(reached, top, Math.max(0.6, right - reached), opHeight - 1);
    }
    pen.fillStyle = colours.queued;
    pen.fill(queued);
    pen.fillStyle = colours.op;
    pen.fill(busy);
    pen.fillStyle = colours.failed;
    pen.fill(lost);
  }

  function placeOf(row) {
    const number = rows.lane[row];
    return shown.find((p) => p.number === number) ||
      shown.find((p) => p.number === lanes[number].pod);
  }
  function centreOf(row, scrolled) {
    const place = placeOf(row);
    return topHeight + place.y - scrolled + (place.lane.pod < 0 ? 20 : 16);
  }

  // drawRelations marks the selected row, and draws lines to its causes and effects.
  function drawRelations(scrolled) {
    const row = view.selected;
    if (row < 0) return;
    const y = centreOf(row, scrolled);
    const at = x(rows.at[row]);
    pen.save();
    pen.beginPath();
    pen.rect(labelWidth, topHeight, width - labelWidth, height);
    pen.clip();
    pen.strokeStyle = colours.accent;
    pen.fillStyle = colours.accent;
    const related = relationsOf(row);
    for (const [list, dash] of [[related.causes, [4, 3]], [related.effects, []]]) {
      pen.setLineDash(dash);
      for (const { row: other } of list) {
        if (other < 0) continue;
        pen.beginPath();
        pen.moveTo(at, y);
        const toX = x(rows.at[other]), toY = centreOf(other, scrolled);
        pen.quadraticCurveTo((at + toX) / 2, Math.min(y, toY) - 8, toX, toY);
        pen.stroke();
        pen.beginPath();
        pen.arc(toX, toY, 3, 0, 7);
        pen.fill();
      }
    }
    pen.setLineDash([]);
    pen.globalAlpha = 0.5;
    pen.fillRect(at - 0.5, topHeight, 1, height);
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(at, y, 5.5, 0, 7);
    pen.stroke();
    pen.restore();
  }

  function drawTop(step) {
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, width, topHeight);
    pen.fillStyle = colours.line;
    pen.fillRect(0, topHeight - 1, width, 1);
    pen.font = small;
    pen.save();
    pen.beginPath();
    pen.rect(labelWidth, 0, width - labelWidth, topHeight);
    pen.clip();
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      pen.fillStyle = colours.line;
      pen.fillRect(Math.round(x(at)), axisHeight - 6, 1, topHeight);
      pen.fillStyle = colours.soft;
      pen.fillText(formatTime(at, step), x(at) + 4, axisHeight - 12);
    }
    const healed = x(run.healed);
    pen.fillStyle = colours.ready;
    pen.fillRect(healed, axisHeight - 4, 1.5, topHeight);
    label("faults heal", healed, healed + 90, axisHeight + planHeight / 2, colours.ready);
    let column = -9;
    for (let i = firstAt(planRows, view.from); i < planRows.length; i++) {
      const px = x(rows.at[planRows[i]]);
      if (px > width) break;
      if (px - column < 2 && !isHit[planRows[i]]) continue;
      column = px;
      pen.fillStyle = isHit[planRows[i]] ? colours.hit : colours.plan;
      pen.beginPath();
      pen.moveTo(px, axisHeight); pen.lineTo(px + 4, axisHeight + 5);
      pen.lineTo(px, axisHeight + 10); pen.lineTo(px - 4, axisHeight + 5);
      pen.fill();
    }
    for (const bar of processes) drawBar(bar, axisHeight + planHeight);
    for (const bar of faults) drawBar(bar, axisHeight + planHeight + (1 + bar.level) * barHeight);
    pen.restore();
    const names = [["plan", axisHeight + planHeight / 2],
      ["agent, machine, runtime", axisHeight + planHeight + barHeight / 2 + 1]];
    if (faultLevels) names.push(["faults", axisHeight + planHeight + barHeight * 1.5 + 1]);
    pen.font = small;
    for (const [name, y] of names) label(name, 6, labelWidth, y, colours.soft);
  }

  function drawBar(bar, y) {
    if (bar.to < view.from || bar.from > view.to) return;
    const left = Math.max(labelWidth - 2, x(bar.from)), right = Math.min(width + 2, x(bar.to));
    const isProcess = bar.kind === "machineDown" || bar.kind === "runtimeDown";
    pen.fillStyle = colours[barKinds[bar.kind]];
    pen.fillRect(left, y + 1, Math.max(1.5, right - left - 1), barHeight - 2 - (isProcess ? 4 : 0));
    const words = bar.kind === "agent" || bar.kind === "fault" ? text(bar.label) : barNames[bar.kind];
    label(words, left, right, y + barHeight / 2 + 0.5, colours.text);
  }

  function drawVerdict() {
    const v = run.verdict;
    if (!v || v.at < view.from || v.at > view.to) return;
    const at = Math.min(width - 2, x(v.at));
    pen.fillStyle = colours.failed;
    pen.fillRect(at - 1, axisHeight - 4, 2, height);
    pen.font = "600 " + small;
    const words = "FAIL " + v.oracle, wide = pen.measureText(words).width + 10;
    const left = Math.min(width - wide, Math.max(labelWidth, at - wide / 2));
    pen.fillRect(left, 2, wide, 15);
    pen.fillStyle = "#ffffff";
    pen.fillText(words, left + 5, 10);
  }

  // ---- Causes and effects ----

  // relationsOf returns the rows that caused a row, and those that it caused. An event is caused by
  // the effect that it answers, an effect by the event of its step, and a fact by the effect or the
  // happening of the plan that led to it, now or earlier.
  function relationsOf(row) {
    const causes = [], effects = [];
    const op = rows.op[row] >= 0 ? ops[rows.op[row]] : null;
    switch (rows.kind[row]) {
    case 0:
      if (op) causes.push({ row: op.effect, how: "answers" });
      for (let i = row + 1; i < count && rows.number[i] === rows.number[row]; i++) {
        effects.push({ row: i, how: "" });
      }
      break;
    case 1:
      causes.push({ row: eventRow.get(rows.number[row]), how: "in the step of" });
      if (op && op.answer >= 0) effects.push({ row: op.answer, how: "answered by" });
      break;
    case 2:
      if (rows.origin[row] >= 0) causes.push({ row: rows.origin[row], how: "led to by" });
    }
    for (const fact of ledTo.get(row) || []) effects.push({ row: fact, how: "led to" });
    return { causes, effects };
  }

  function laneName(number) {
    const lane = lanes[number];
    return lane.pod >= 0 ? lanes[lane.pod].name + " / " + lane.name : lane.name;
  }

  function element(name, words, parent, className) {
    const e = document.createElement(name);
    if (words !== undefined) e.textContent = words;
    if (className) e.className = className;
    if (parent) parent.append(e);
    return e;
  }

  function rowTitle(row) { return kindMarks[rows.kind[row]] + " " + text(rows.name[row]); }

  const listMax = 200;
  function showDetails(note) {
    const pane = byID("details");
    pane.replaceChildren();
    const row = view.selected;
    if (row < 0) {
      element("h2", "Nothing selected", pane);
      element("p", "Click a bar, an operation or a tick to see what it is, what caused it and what " +
        "it caused. Hold Ctrl and turn the wheel to zoom.", pane, "soft");
      return;
    }
    const title = element("h2", rowTitle(row), pane);
    title.setAttribute("role", "status");
    if (note) element("p", note, pane, "soft");
    const list = element("dl", undefined, pane);
    const add = (name, value) => { element("dt", name, list); element("dd", value, list); };
    add("kind", ["event of the agent", "effect of the agent", "fact of the simulated world",
      "happening of the plan"][rows.kind[row]]);
    add("time", formatTime(rows.at[row], 1));
    add("lane", laneName(rows.lane[row]));
    if (rows.number[row]) add("event", "#" + rows.number[row]);
    if (rows.incarnation[row]) add("agent", "incarnation " + rows.incarnation[row]);
    const op = rows.op[row] >= 0 ? ops[rows.op[row]] : null;
    if (op) {
      add("operation", "#" + op.id);
      add("took", formatLength(op.end - op.from));
      if (op.reached > op.from) add("waited", formatLength(op.reached - op.from));
      if (op.reached < 0) add("waited", "it did not reach its port");
      if (op.answer < 0) add("answer", "none");
    }
    if (text(rows.text[row])) element("pre", text(rows.text[row]), pane);
    const { causes, effects } = relationsOf(row);
    for (const [heading, related, none] of [["Caused by", causes, "Nothing that is recorded."],
      ["Effects", effects, "None that are recorded."]]) {
      element("h3", heading, pane);
      if (!related.length) element("span", none, pane, "soft");
      for (const { row: other, how } of related.slice(0, listMax)) {
        const button = element("button", rowTitle(other), pane);
        button.dataset.row = other;
        const more = [how, formatTime(rows.at[other], 1), laneName(rows.lane[other]),
          text(rows.text[other]).slice(0, 80)].filter(Boolean).join(" · ");
        element("div", more, button, "soft");
        button.addEventListener("click", () => select(other, true));
      }
      if (related.length > listMax) {
        element("span", "and " + (related.length - listMax) + " more", pane, "soft");
      }
    }
  }

  function select(row, reveals, note) {
    view.selected = row;
    if (reveals && row >= 0) reveal(row);
    showDetails(note);
    redraw();
  }

  // reveal moves the view, so that a row is in it.
  function reveal(row) {
    const at = rows.at[row], length = view.to - view.from;
    if (at < view.from + length * 0.03 || at > view.to - length * 0.03) {
      setRange(at - length / 2, at + length / 2);
    }
    const place = placeOf(row), room = height - topHeight;
    if (place.y < scroller.scrollTop || place.y + place.height > scroller.scrollTop + room) {
      scroller.scrollTop = Math.max(0, place.y - room / 2);
    }
  }

  // ---- Moving and zooming ----

  const shortest = 50; // microseconds
  function setRange(from, to) {
    const length = Math.min(run.end * 1.02, Math.max(shortest, to - from));
    const middle = (from + to) / 2, margin = length * 0.1;
    from = Math.max(-margin, Math.min(middle - length / 2, run.end + margin - length));
    view.from = from;
    view.to = from + length;
    redraw();
  }
  const fit = () => setRange(0, run.end * 1.01);
  function zoom(factor, px) {
    const at = timeAt(px === undefined ? x(anchor()) : px);
    setRange(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }
  // anchor is where keys zoom: at what is selected, or in the middle.
  function anchor() {
    const at = view.selected < 0 ? -1 : rows.at[view.selected];
    return at >= view.from && at <= view.to ? at : (view.from + view.to) / 2;
  }
  const move = (part) => {
    const by = (view.to - view.from) * part;
    setRange(view.from + by, view.to + by);
  };

  scroller.addEventListener("scroll", redraw);
  canvas.addEventListener("wheel", (e) => {
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) / 120), Math.max(labelWidth, e.offsetX));
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      move((e.deltaX || e.deltaY) / (width - labelWidth));
    }
  }, { passive: false });

  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    drag = { x: e.offsetX, y: e.offsetY, from: view.from, to: view.to, top: scroller.scrollTop,
      range: e.shiftKey, moved: false, now: e.offsetX };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) { hover(e.offsetX, e.offsetY); return; }
    drag.now = e.offsetX;
    const dx = e.offsetX - drag.x, dy = e.offsetY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
    if (!drag.moved) return;
    if (drag.range) { redraw(); return; }
    const by = -dx / scale();
    setRange(drag.from + by, drag.to + by);
    scroller.scrollTop = drag.top - dy;
  });
  canvas.addEventListener("pointerup", (e) => {
    const d = drag;
    drag = null;
    if (!d) return;
    if (!d.moved) { clickAt(e.offsetX, e.offsetY); return; }
    if (d.range) {
      const a = timeAt(Math.min(d.x, d.now)), b = timeAt(Math.max(d.x, d.now));
      setRange(a, b);
    }
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("dblclick", (e) => { if (e.offsetX > labelWidth) zoom(0.4, e.offsetX); });
  function drawRange() {
    if (!drag || !drag.range || !drag.moved) return;
    pen.fillStyle = colours.accent;
    pen.globalAlpha = 0.18;
    pen.fillRect(Math.min(drag.x, drag.now), 0, Math.abs(drag.x - drag.now), height);
    pen.globalAlpha = 1;
  }

  // ---- What is at a place ----

  // find returns the row at a place of the canvas, with a note about it; null if nothing is there.
  function find(px, py) {
    if (px < labelWidth) return null;
    if (py < topHeight) return findInTop(px, py);
    const y = py - topHeight + scroller.scrollTop;
    const place = shown.find((p) => y >= p.y && y < p.y + p.height);
    if (!place) return null;
    const inside = y - place.y;
    if (place.lane.pod < 0 && inside >= 23) {
      const op = findOp(place.lane, px, Math.min(opLevels - 1, Math.floor((inside - 24) / opHeight)));
      if (op) return { row: op.effect, note: "" };
    }
    if (inside < 15) {
      const span = place.lane.spans.find(([from, to]) => x(from) - 1 <= px && px <= x(to) + 1);
      const tick = findRow(place.lane.rows, px, 2);
      if (span) {
        const [from, to, state, words, row] = span;
        const note = [laneName(place.number) + " is " + stateNames[state - 1], text(words),
          "for " + formatLength(to - from), "from here"].filter(Boolean).join(", ") + ".";
        if (tick.row < 0 || tick.row === row || x(to) - x(from) > 6) return { row, note };
      }
    }
    const tick = findRow(place.lane.rows, px, 6);
    if (tick.row < 0) return null;
    const note = tick.merged > 1 ? tick.merged + " rows are in this pixel: zoom in for each." : "";
    return { row: tick.row, note };
  }
  function findOp(lane, px, level) {
    let best = null, distance = 4;
    for (const op of lane.ops) {
      if (op.from > view.to) break;
      if (op.level !== level || op.end < view.from) continue;
      const left = x(op.from), right = x(op.end);
      const d = px < left ? left - px : px > right ? px - right : 0;
      if (d < distance) { best = op; distance = d; }
    }
    return best;
  }
  // findRow returns the row of a list that is nearest to a column, and how many are in its pixel.
  function findRow(list, px, most) {
    let best = -1, distance = most + 0.5, merged = 0;
    for (let i = firstAt(list, timeAt(px - most)); i < list.length; i++) {
      const at = x(rows.at[list[i]]);
      if (at > px + most) break;
      const d = Math.abs(at - px) - (isHit[list[i]] ? 3 : 0);
      if (d < distance - 0.001) { best = list[i]; distance = d; }
    }
    if (best >= 0) {
      const column = Math.floor(x(rows.at[best]));
      for (let i = firstAt(list, timeAt(column)); i < list.length; i++) {
        if (x(rows.at[list[i]]) >= column + 1) break;
        merged++;
      }
    }
    return { row: best, merged };
  }
  function findInTop(px, py) {
    if (py < axisHeight) return null;
    if (py < axisHeight + planHeight) {
      const { row } = findRow(planRows, px, 6);
      return row < 0 ? null : { row, note: "" };
    }
    const level = Math.floor((py - axisHeight - planHeight) / barHeight) - 1;
    const list = level < 0 ? processes : faults.filter((f) => f.level === level);
    const bar = list.findLast((b) => x(b.from) - 2 <= px && px <= x(b.to) + 2);
    if (!bar) return null;
    const name = bar.kind === "agent" ? text(bar.label) : bar.kind === "fault" ?
      "fault " + text(bar.label) : barNames[bar.kind];
    return { row: bar.row, note: name + ", for " + formatLength(bar.to - bar.from) + "." };
  }
  function clickAt(px, py) {
    canvas.focus({ preventScroll: true });
    const found = find(px, py);
    if (found) select(found.row, false, found.note); else select(-1);
  }
  function hover(px, py) {
    const found = find(px, py);
    canvas.style.cursor = found ? "pointer" : "default";
    canvas.title = found ? rowTitle(found.row) + "  " + formatTime(rows.at[found.row], 1) + "\n" +
      (found.note ? found.note + "\n" : "") + text(rows.text[found.row]).slice(0, 200) : "";
  }

  // ---- Search ----

  let lowered = null;
  function search(query) {
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    isHit.fill(0);
    view.hits = [];
    view.hit = -1;
    if (wanted.length) {
      lowered = lowered || run.strings.map((s) => s.toLowerCase());
      const names = lanes.map((_, i) => laneName(i).toLowerCase());
      const inText = wanted.map((w) => lowered.map((s) => s.includes(w)));
      const inLane = wanted.map((w) => names.map((s) => s.includes(w)));
      const inKind = wanted.map((w) => kindNames.map((s) => s === w));
      for (let i = 0; i < count; i++) {
        const number = "#" + rows.number[i];
        if (wanted.every((w, k) => inText[k][rows.name[i]] || inText[k][rows.text[i]] ||
          inLane[k][rows.lane[i]] || inKind[k][rows.kind[i]] || w === number)) {
          isHit[i] = 1;
          view.hits.push(i);
        }
      }
    }
    showCount();
    redraw();
  }
  function showCount() {
    const n = view.hits.length;
    byID("count").textContent = !byID("query").value.trim() ? "" : n === 0 ? "no match" :
      (view.hit < 0 ? "" : (view.hit + 1) + " of ") + n + (view.hit < 0 ? " matches" : "");
  }
  // next selects the match after what is selected, or before it.
  function next(by) {
    const n = view.hits.length;
    if (!n) return;
    if (view.hit < 0) {
      const after = view.hits.findIndex((row) => rows.at[row] >= Math.max(0, view.from));
      view.hit = by > 0 ? Math.max(0, after) : n - 1;
    } else {
      view.hit = (view.hit + by + n) % n;
    }
    showCount();
    select(view.hits[view.hit], true);
  }
  byID("query").addEventListener("input", (e) => search(e.target.value));
  byID("search").addEventListener("submit", (e) => e.preventDefault()); // Enter is a key
  byID("query").addEventListener("keydown", (e) => {
    if (e.key === "Enter") { e.preventDefault(); next(e.shiftKey ? -1 : 1); }
    if (e.key === "Escape") { e.target.blur(); canvas.focus(); }
  });
  byID("next").addEventListener("click", () => next(1));
  byID("previous").addEventListener("click", () => next(-1));

  // ---- Keys and buttons ----

  // step selects the row before or after the selected one in its lane.
  function step(by) {
    if (view.selected < 0) {
      const all = lanes[0].rows;
      if (all.length) select(all[Math.min(all.length - 1, firstAt(all, view.from))], true);
      return;
    }
    const list = lanes[rows.lane[view.selected]].rows;
    const to = list[list.indexOf(view.selected) + by];
    if (to !== undefined) select(to, true);
  }
  function toVerdict() {
    const v = run.verdict;
    if (!v) return;
    select(v.row, false, "FAIL " + v.oracle + ": " + v.message);
    reveal(v.row);
  }
  function toggleTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" :
      matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    themeChanged();
  }
  function themeChanged() { readColours(); showLegend(); redraw(); }
  function toggleContainers() { view.containers = !view.containers; arrange(); redraw(); }
  function toggleHelp() {
    const keys = byID("keys");
    keys.hidden = !keys.hidden;
    byID("help").setAttribute("aria-expanded", String(!keys.hidden));
  }
  const keys = {
    ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
    ArrowUp: () => { scroller.scrollTop -= 60; }, ArrowDown: () => { scroller.scrollTop += 60; },
    PageUp: () => { scroller.scrollTop -= height - topHeight; },
    PageDown: () => { scroller.scrollTop += height - topHeight; },
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    0: fit, Home: fit, "[": () => step(-1), "]": () => step(1), n: () => next(1), p: () => next(-1),
    v: toVerdict, c: toggleContainers, t: toggleTheme, "?": toggleHelp,
    Escape: () => { byID("keys").hidden = true; select(-1); },
    "/": () => { byID("query").focus(); byID("query").select(); },
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === "INPUT") return;
    if (!Object.hasOwn(keys, e.key)) return;
    e.preventDefault();
    keys[e.key]();
  });
  const click = (id, handle) => byID(id).addEventListener("click", () => handle());
  click("in", () => zoom(0.6));
  click("out", () => zoom(1 / 0.6));
  click("fit", fit);
  click("containers", toggleContainers);
  click("theme", toggleTheme);
  click("help", toggleHelp);
  if (run.verdict) click("verdict", toVerdict);

  function showLegend() {
    const legend = byID("legend");
    legend.replaceChildren();
    const add = (colour, name) => {
      const entry = element("span", undefined, legend);
      element("i", undefined, entry).style.background = colours[colour];
      entry.append(name);
    };
    for (const name of stateColours.slice(1)) add(name, name);
    add("queued", "operation waits");
    add("op", "operation in flight");
    for (const name of kindNames) add(name, name);
    add("fault", "fault");
    add("down", "down");
  }

  // api is what tests of the page use.
  const api = { lastDraw: 0, draws: 0, view, run, x, centreOf, draw, setRange, find, select };
  window.report = api;
  readColours();
  showLegend();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
  new ResizeObserver(resize).observe(scroller);
  resize();
  fit();
  showDetails();
})();
