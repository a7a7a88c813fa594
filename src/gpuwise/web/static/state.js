// The state of the page, and the callback for changes.

export const state = {
  connection: "connecting", // connecting, live, lost or login
  trouble: "", // what is wrong, in words
  asOf: null, // when the lists were last read
  events: [], // oldest first; the other lists are here by their names
};

let listener = () => {};

export const onChange = (callback) => { listener = callback; };
export const changed = () => listener();

export const setConnection = (connection, trouble = "") => {
  Object.assign(state, { connection, trouble });
  changed();
};
