import{$ as e,Lr as t,M as n,N as r,V as i,Vn as a,Yr as o,j as s,nr as c,tr as l}from"./start.js";async function u(e){try{await i(p(await t.session(e))),c(o().copied)}catch(e){l(e)}}async function d(e,n){try{let r=await(n===`json`?t.wholeSession(e):t.session(e)),i=(r.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;n===`json`?g(`${i}.json`,JSON.stringify(r,null,2),`application/json`):g(`${i}.md`,p(r),`text/markdown`)}catch(e){l(e)}}async function f(e){try{let n=[];for(let r of e)n.push(p(await t.session(r)));g(`chats.md`,n.join(`
---

`),`text/markdown`)}catch(e){l(e)}}function p(e){return`${[`# ${e.title||o().untitled}`,...e.system?[h(e.system)]:[],...n(e.messages).map(m)].join(`

`)}\n`}function m({message:t,earlier:n}){let i=t.role===`user`?o().you:r([...n,t]).join(`, `)||t.role,c=e(t.outcome,null),l=[...[...n,t].flatMap(({content:e})=>a(e)).map(()=>o().imageAlt),t.edited?o().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${i}`,s([...n,t]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};