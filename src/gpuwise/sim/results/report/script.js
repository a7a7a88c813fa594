"use strict";
(() => {
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const tip = document.getElementById("tip");
  const hidden = new Set();

  const duration = (s) => {
    if (s < 59.95) return s.toFixed(1) + "s";
    const two = (n) => String(n).padStart(2, "0");
    const whole = Math.round(s), minutes = Math.round(s / 60), hours = Math.round(s / 3600);
    if (whole < 3600) return Math.floor(whole / 60) + "m" + two(whole % 60) + "s";
    if (minutes < 1440) return Math.floor(minutes / 60) + "h" + two(minutes % 60) + "m";
    return Math.floor(hours / 24) + "d" + two(hours % 24) + "h";
  };

  const element = (name, text = "", className = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    made.className = className;
    return made;
  };

  // Names reach the page as text only, so a job may have any name.
  const say = (event, head, rows) => {
    tip.replaceChildren(element("b", head));
    for (const [name, value, colour] of rows) {
      const row = element("div"), left = element("span");
      if (colour !== undefined) left.append(element("span", "", "swatch c" + colour));
      left.append(name);
      row.append(left, element("span", value));
      tip.append(row);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), gap = 14;
    const right = event.clientX + gap + box.width > innerWidth;
    tip.style.left = Math.max(4, right ? event.clientX - gap - box.width : event.clientX + gap) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + gap, innerHeight - box.height - 4)) + "px";
  };

  const lines = (data, cursor) => (event, x) => {
    cursor.className = "cursor";
    cursor.style.cssText = `left:${100 * x}%`;
    const [low, high] = data.log || [0, data.span];
    const at = data.log ? low * Math.pow(high / low, x) : x * data.span;
    const rows = data.lines.filter((line) => !hidden.has(line.policy)).map((line) => {
      const i = Math.min(line.values.length - 1, Math.floor(x * line.values.length));
      const allocated = line.allocated ? ` used, ${line.allocated[i]}${data.unit} allocated` : "";
      return [line.name, line.values[i].toLocaleString("en") + data.unit + allocated, line.policy % 8];
    });
    say(event, `${data.head} ${duration(at)}`, rows);
    return true;
  };

  const bars = (data, cursor) => (event, x, y, width) => {
    const at = x * data.span, slack = (2 / width) * data.span;
    let found = -1, nearest = Infinity;
    for (let i = 0; i < data.job.length; i++) {
      if (10000 * y < data.top[i] || 10000 * y > data.top[i] + data.height[i]) continue;
      const away = Math.max(data.begin[i] - at, at - data.begin[i] - data.lasts[i], 0);
      if (away <= slack && away < nearest) { found = i; nearest = away; }
    }
    if (found < 0) return false;
    const left = data.begin[found] / data.span, wide = data.lasts[found] / data.span;
    cursor.className = "outline";
    cursor.style.cssText = `left:calc(${100 * left}% - 1px);width:max(4px, ${100 * wide}% + 2px);` +
      `top:calc(${data.top[found] / 100}% - 1px);height:max(4px, ${data.height[found] / 100}% + 2px)`;
    say(event, `job ${data.ids[data.job[found]]}`, [
      ["node", data.nodes[data.node[found]]],
      ["GPUs here", String(data.gpus[found])],
      ["from", duration(data.begin[found])],
      ["for", duration(data.lasts[found])],
    ]);
    return true;
  };

  const map = (data, cursor) => (event, x, y) => {
    const row = Math.min(data.nodes.length - 1, Math.floor(y * data.nodes.length));
    const columns = data.cells[row].length, column = Math.min(columns - 1, Math.floor(x * columns));
    const tenth = data.cells[row].charCodeAt(column) - 65;
    cursor.className = "outline";
    cursor.style.cssText = `left:${(100 * column) / columns}%;width:${100 / columns}%;` +
      `top:${(100 * row) / data.nodes.length}%;height:${100 / data.nodes.length}%`;
    const allocated = tenth === 0 ? "none" : tenth === 1 ? "up to 10%" : `${10 * (tenth - 1)} to ${10 * tenth}%`;
    say(event, data.nodes[row], [["after", duration((column / columns) * data.span)], ["GPUs allocated", allocated]]);
    return true;
  };

  for (const plot of all(".plot")) {
    const data = JSON.parse(plot.parentElement.querySelector('script[type="application/json"]').textContent);
    const cursor = element("div", "", "cursor");
    const show = { lines, bars, map }[data.kind](data, cursor);
    cursor.hidden = true;
    plot.append(cursor);
    const leave = () => { cursor.hidden = tip.hidden = true; };
    const follow = (event) => {
      const box = plot.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      if (x < 0 || x > 1 || y < 0 || y > 1 || !show(event, x, y, box.width)) return leave();
      cursor.hidden = false;
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", leave);
  }

  for (const box of all("[data-toggle]")) {
    const number = box.dataset.toggle;
    const apply = () => {
      hidden[box.checked ? "delete" : "add"](Number(number));
      for (const line of all(`[data-policy="${number}"]`)) line.classList.toggle("off", !box.checked);
    };
    box.addEventListener("change", apply);
    apply();
  }

  const tabs = all("[role=tab]");
  const choose = (chosen) => tabs.forEach((tab) => {
    const on = tab === chosen;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
  });
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = tabs[(i + by + tabs.length) % tabs.length];
      choose(next);
      next.focus();
    });
  });
  choose(tabs[0]);

  for (const table of all(".sortable")) {
    const heads = all("thead th", table), body = table.tBodies[0];
    heads.forEach((head, column) => head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const order = column ? (row) => Number(row.cells[column].dataset.value ?? Infinity) : (row) => row.cells[0].textContent;
      const compare = (a, b) => { const x = order(a), y = order(b); return x < y ? -1 : x > y ? 1 : 0; };
      const rows = [...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b)));
      body.append(...rows);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    }));
  }
})();
