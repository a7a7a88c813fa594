// Requests to the server of this page, with the secret of the session.

// Browsers keep this for each port of a host; a cookie would be sent to all of them, and so to other users' servers.
const KEY = "gpuwise.session";

export const session = () => localStorage.getItem(KEY);

export const keepSession = (secret) => {
  if (secret) localStorage.setItem(KEY, secret);
  else localStorage.removeItem(KEY);
};

// Forgets a session that the server refuses, unless another tab has a new one already.
export const dropSession = (secret) => {
  if (session() === secret) keepSession(null);
};

// Calls back when another tab has logged in or out.
export const onOtherSession = (callback) => addEventListener("storage", ({ key }) => key === KEY && callback());

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

const send = async (method, path, { body, headers = {}, signal, secret = session() } = {}) => {
  const options = { method, signal, headers: { ...headers }, credentials: "omit", cache: "no-store" };
  if (secret) options.headers.Authorization = `Bearer ${secret}`;
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

// A session for a token or a code: its secret and its user.
export const openSession = async (given) => (await send("POST", "/v1/session", { body: given, secret: null })).json();
export const endSession = (secret) => send("DELETE", "/v1/session", { secret });

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
