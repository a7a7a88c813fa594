// Elements from plain values, and a way to update the page to match them.
// Text reaches the page as text nodes only, so a job may have any name.

const SVG = "http://www.w3.org/2000/svg";

const NOTHING = [null, undefined, false, ""];
const flat = (children) => children.flat(Infinity).filter((child) => !NOTHING.includes(child));

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
};

export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
const alike = (a, b) => a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

const morphAttributes = (old, fresh) => {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
};

const morph = (old, fresh) => {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  morphAttributes(old, fresh);
  if (!old.hasAttribute("data-own")) show(old, [...fresh.childNodes]);
};

// Makes a parent's children like the fresh ones. Elements with the same data-key stay the same elements, so that focus,
// selection and scrolling survive; the children of one with data-own are left alone.
export const show = (parent, ...fresh) => {
  const wanted = flat(fresh);
  const keys = new Set(wanted.map(keyOf).filter((key) => key !== null));
  const known = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (key === null) continue;
    if (keys.has(key)) known.set(key, child);
    else child.remove();
  }
  let cursor = parent.firstChild;
  for (const child of wanted) {
    const match = keyOf(child) === null ? cursor : known.get(keyOf(child));
    if (match && alike(match, child)) {
      if (match === cursor) cursor = cursor.nextSibling;
      else parent.insertBefore(match, cursor);
      morph(match, child);
    } else {
      parent.insertBefore(child, cursor);
    }
  }
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
};
