// What the Stop button of a page with `useChat` does, in place of the `stop` that `useChat` returns.
//
// That one only closes the page's own connection, and `useChat` calls it by itself when a component goes away. So it must
// not stop anything: the answer goes on, and `resume: true` finds it again. This one stops the answer. The stream then
// ends by itself, with what had been said kept, in every tab that watches it.
//
//     const { id, messages, sendMessage } = useChat({ id: chatId, resume: true });
//     <button onClick={() => stopChat(id)}>Stop</button>

export const stopChat = (id, { api = "/api/chat", fetch = globalThis.fetch, ...request } = {}) =>
  fetch(`${api}/${encodeURIComponent(id)}/stop`, { ...request, method: "POST" });
