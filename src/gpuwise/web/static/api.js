// Requests to the server of this page. The session is a cookie that scripts cannot read.

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let skew = 0; // seconds that the server's clock is ahead of this one

export const now = () => Date.now() / 1000 + skew;

const noteClock = (response) => {
  const ahead = Date.parse(response.headers.get("Date")) / 1000 + 0.5 - Date.now() / 1000;
  if (Number.isFinite(ahead)) skew = Math.abs(ahead) > 2 ? ahead : 0;
};

const fail = async (response) => {
  const body = await response.json().catch(() => ({}));
  const { code = "", message = `the server answered with status ${response.status}` } = body.error ?? {};
  throw new ApiError(response.status, code, message);
};

const send = async (method, path, { body, headers = {}, signal } = {}) => {
  const options = { method, signal, headers: { ...headers }, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  noteClock(response);
  return response.ok ? response : fail(response);
};

export const get = async (path, signal) => (await send("GET", path, { signal })).json();
export const post = (path, body) => send("POST", path, { body });
export const remove = (path) => send("DELETE", path);

// The bytes of a response as they arrive; `onOpen` gets its headers first.
export const chunks = async function* (path, { signal, headers, onOpen } = {}) {
  const response = await send("GET", path, { signal, headers });
  onOpen?.(response.headers);
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
};

// Server-sent events, of every kind. (EventSource only gives the kinds it was registered for, and hides the status.)
export const events = async function* (path, options) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks(path, options)) {
    const blocks = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
    rest = blocks.pop();
    yield blocks.map(parseEvent).filter((event) => event !== null);
  }
};

const parseEvent = (block) => {
  const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
  return data ? JSON.parse(data) : null;
};
