import{A as e,Cr as t,Fr as n,Hn as r,J as i,L as a,O as o,Vn as s,k as c}from"./start.js";async function l(e){try{await a(f(await t.session(e))),r(n().copied)}catch(e){s(e)}}async function u(e,n){try{let r=await(n===`json`?t.wholeSession(e):t.session(e)),i=(r.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;n===`json`?h(`${i}.json`,JSON.stringify(r,null,2),`application/json`):h(`${i}.md`,f(r),`text/markdown`)}catch(e){s(e)}}async function d(e){try{let n=[];for(let r of e)n.push(f(await t.session(r)));h(`chats.md`,n.join(`
---

`),`text/markdown`)}catch(e){s(e)}}function f(e){return`${[`# ${e.title||n().untitled}`,...e.system?[m(e.system)]:[],...c(e.messages).map(p)].join(`

`)}\n`}function p({message:t,earlier:r}){let a=t.role===`user`?n().you:e([...r,t]).join(`, `)||t.role,s=i(t.outcome,null),c=[t.edited?n().editedByPerson:``,s?.label??``].filter(Boolean);return[`## ${a}`,o([...r,t]),...c.map(e=>`*${e}.*`)].join(`

`)}function m(e){return e.replace(/^/gm,`> `)}function h(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{f as asMarkdown,l as copyMarkdown,d as exportAll,u as exportAs};