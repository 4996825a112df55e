// The page's base: its data, elements, numbers as text, themes, files to download.
"use strict";

const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NOISE = "inside the noise";

  /** An element: `make("td", {class: "text"}, child, ...)`; `on...` attributes are listeners. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  }

  const section = (id) => document.getElementById(id);
  const about = (text) => make("p", {class: "about"}, text);

  /** Text with `code` and **bold** as elements. */
  function rich(text) {
    return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
      if (part.startsWith("`")) return make("code", {}, part.slice(1, -1));
      return part.startsWith("**") ? make("b", {}, part.slice(2, -2)) : part;
    });
  }

  const list = (lines) =>
    make("ul", {class: "plain"}, lines.map((line) => make("li", {}, ...rich(line.replace(/^- /, "")))));

  /** A cell of a table: empty is null, numbers are numbers. */
  function value(text) {
    if (text === "" || text === undefined) return null;
    if (text === "true" || text === "false") return text === "true";
    const number = Number(text);
    return Number.isNaN(number) ? text : number;
  }

  const number = (x, digits = 2, sign = false) =>
    x === null || x === undefined ? "-" : (sign && x >= 0 ? "+" : "") + x.toFixed(digits).replace("-", "−");
  const share = (x) => (x === null || x === undefined ? "-" : `${(100 * x).toFixed(x >= 0.0995 || x === 0 ? 0 : 1)} %`);

  function bytes(count) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let at = 0;
    for (; count >= 1000 && at < units.length - 1; at += 1) count /= 1000;
    return `${count.toFixed(at && count < 10 ? 1 : 0)} ${units[at]}`;
  }

  function seconds(count) {
    if (count === null || count === undefined) return "-";
    if (count < 120) return `${count.toFixed(count < 10 ? 1 : 0)} s`;
    return count < 7200 ? `${(count / 60).toFixed(1)} min` : `${(count / 3600).toFixed(1)} h`;
  }

  /** The rows of a table as objects, read once. */
  const read = {};
  function rows(name) {
    if (!read[name]) {
      const {columns, rows: found} = data.tables[name];
      read[name] = found.map((row, at) => ({...Object.fromEntries(columns.map((c, i) => [c, value(row[i])])), at}));
    }
    return read[name];
  }

  /** The rows of a kind of metrics as objects with arm, seed and step. */
  const measured = {};
  function metrics(kind) {
    if (!measured[kind]) {
      const {columns, rows: found} = data.metrics[kind];
      measured[kind] = found.map(([arm, seed, step, ...values]) => ({
        arm, seed, step, ...Object.fromEntries(columns.map((c, i) => [c, values[i]])),
      }));
    }
    return measured[kind];
  }

  function save(name, type, content) {
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], {type}));
    make("a", {href: url, download: name}).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  function csv(columns, found) {
    const cell = (x) => {
      const text = x === null || x === undefined ? "" : String(x);
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [columns, ...found.map((row) => columns.map((c) => row[c]))].map((r) => r.map(cell).join(",")).join("\n") + "\n";
  }

  // Themes: the system's, or what the button says; plots are drawn again when it changes.
  const listeners = [];
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const dark = () => (chosen ?? (system.matches ? "dark" : "light")) === "dark";
  function paint() {
    document.documentElement.dataset.theme = dark() ? "dark" : "light";
    section("theme").textContent = dark() ? "light" : "dark";
    listeners.forEach((listen) => listen());
  }
  section("theme").addEventListener("click", () => {
    chosen = dark() ? "light" : "dark";
    paint();
  });
  system.addEventListener("change", paint);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // Arms that plots show in colour: at first the reference and those that end highest.
  const arms = data.study.arms.map((arm) => arm.name);
  const best = [...rows("final")].sort((a, b) => (b.eval_return ?? -9) - (a.eval_return ?? -9)).map((row) => row.arm);
  const shown = new Set([data.study.reference, ...best].filter((arm) => arms.includes(arm)).slice(0, 4));

  document.title = `${data.study.name}: what happened`;
  section("title").textContent = data.study.name;
  for (const part of document.querySelectorAll("main section")) {
    section("nav").append(make("a", {href: `#${part.id}`}, part.querySelector("h2").textContent));
  }
  paint();

  return {
    data, make, section, about, rich, list, value, number, share, bytes, seconds, rows, metrics, save, csv, colour, dark,
    arms, shown, NOISE, onTheme: (listen) => listeners.push(listen),
  };
})();
