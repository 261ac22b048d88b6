/** Reads an event stream from a response's body, event by event, to its end. */
import { createParser } from "eventsource-parser";

export async function readEvents<Frame>(body: ReadableStream<Uint8Array>, take: (event: Frame) => void): Promise<void> {
  const decoder = new TextDecoder();
  const parser = createParser({ onEvent: ({ data }) => take(JSON.parse(data) as Frame) });
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.feed(decoder.decode(value, { stream: true }));
  }
}
