/** A comparison, as section 26 of PROTOCOL.md gives it. */
import type { Content, Outcome, Settlement } from "../types";

export interface Metrics {
  ttft_ms: number | null;
  tokens_per_second: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  usage_source: "provider" | "estimated" | null;
  cost: number | null;
  duration_ms: number | null;
  fastest: boolean;
}

export interface EarlierAnswer {
  text: string;
  outcome: Outcome | null;
}

export interface PaneInfo {
  pane: number;
  label: string;
  /** Null while the comparison is blind and has not been revealed. */
  model: string | null;
  run_id: string | null;
  status: "waiting" | "running" | "settled";
  /** Lists leave the texts out. */
  text?: string;
  reasoning?: string | null;
  /** What it answered to each prompt before the last; null where it said nothing. */
  earlier?: (EarlierAnswer | null)[];
  settlement: Settlement | null;
  metrics: Metrics | null;
}

export type Winner = number | "tie" | "none";

export interface Comparison {
  id: string;
  prompt: Content;
  prompts: Content[];
  system: string | null;
  params: Record<string, unknown>;
  blind: boolean;
  revealed: boolean;
  order: "parallel" | "sequential";
  kind: string;
  status: "running" | "settled";
  created_at: string;
  settled_at: string | null;
  turns: number;
  vote: { winner: Winner; at: string } | null;
  panes: PaneInfo[];
}

export interface Score {
  model: string;
  votes: number;
  wins: number;
  losses: number;
  ties: number;
  all_bad: number;
  win_rate: number | null;
  rating: number | null;
  low: number | null;
  high: number | null;
  panes: number;
  completed: number;
  truncated: number;
  stopped: number;
  failed: number;
  interrupted: number;
  ttft_ms_p50: number | null;
  tokens_per_second_p50: number | null;
  output_tokens: number;
  cost: number | null;
}

export interface Scores {
  models: Score[];
  counted: { blind_votes: number; other_votes: number };
}

export interface Asked {
  prompt: Content;
  models: string[];
  blind: boolean;
  order: "parallel" | "sequential";
  kind?: string;
  system?: string;
}

export const isBlind = ({ blind, revealed }: Comparison): boolean => blind && !revealed;
