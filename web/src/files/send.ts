/** Sends a file ahead of its message, with its progress. */
import { ApiError, authorization, isAway, isSignedOut, Unreachable } from "../api";
import { t } from "../words";
import type { FileFacts } from "./attached";

interface Sending {
  /** Only measured: a temporary chat leaves nothing on the server. */
  isKept: boolean;
  onProgress: (share: number) => void;
  signal: AbortSignal;
}

export function sendFile(file: File, { isKept, onProgress, signal }: Sending): Promise<FileFacts> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // `fetch` does not tell how far it is
    const query = new URLSearchParams({ name: file.name, keep: String(isKept) });
    request.open("POST", `/api/files?${query}`);
    for (const [name, value] of Object.entries(authorization())) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    request.onload = () => {
      isAway.value = false;
      if (request.status === 401) isSignedOut.value = true;
      if (request.status < 300 && request.response) resolve(request.response);
      else reject(request.status === 413 ? new Error(t().fileTooLarge(file.name)) : refused(request));
    };
    request.onerror = () =>
      reject(file.size > LIKELY_TOO_LARGE ? new Error(t().fileTooLarge(file.name)) : new Unreachable());
    request.onabort = () => reject(new DOMException("", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/** A server that refuses so much closes the connection while it is being sent, and no browser shows its answer. */
const LIKELY_TOO_LARGE = 10_000_000;

function refused({ status, response }: XMLHttpRequest): Error {
  const info = response?.error;
  return info ? new ApiError(status, info) : new Error(t().serverError(status));
}

export function dataUrl(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
