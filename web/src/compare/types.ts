/** Comparisons on the page, beside what the server sends of them (docs/protocol/26-comparisons.md). */
import type { Comparison, ComparisonHead, Content, Vote } from "../types";

export type Winner = Vote["winner"];

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

export const isBlind = ({ blind, revealed }: ComparisonHead): boolean => blind && !revealed;

/** The vote was on the responses that are shown: a follow-up since then has others. */
export const isVoteOnThese = ({ vote, settled_at }: Comparison): boolean =>
  vote !== null && settled_at !== null && Date.parse(settled_at) <= Date.parse(vote.at);
