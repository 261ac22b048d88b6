import{D as e,E as t,F as n,K as r,Ln as i,Rn as a,T as o,jr as s,yr as c}from"./start.js";async function l(e){try{await n(f(await c.session(e))),a(s().copied)}catch(e){i(e)}}async function u(e,t){try{let n=await(t===`json`?c.wholeSession(e):c.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?h(`${r}.json`,JSON.stringify(n,null,2),`application/json`):h(`${r}.md`,f(n),`text/markdown`)}catch(e){i(e)}}async function d(e){try{let t=[];for(let n of e)t.push(f(await c.session(n)));h(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){i(e)}}function f(e){return`${[`# ${e.title||s().untitled}`,...e.system?[m(e.system)]:[],...t(e.messages).map(p)].join(`

`)}\n`}function p({message:t,earlier:n}){let i=t.role===`user`?s().you:e([...n,t]).join(`, `)||t.role,a=r(t.outcome,null),c=[t.edited?s().editedByPerson:``,a?.label??``].filter(Boolean);return[`## ${i}`,o([...n,t]),...c.map(e=>`*${e}.*`)].join(`

`)}function m(e){return e.replace(/^/gm,`> `)}function h(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{f as asMarkdown,l as copyMarkdown,d as exportAll,u as exportAs};